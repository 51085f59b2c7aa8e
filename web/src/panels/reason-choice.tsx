// All reasons, or one of them.
import { useAtom } from "../lib/use-atom";
import { reasons } from "../state/trace";

const ALL = "all reasons";

export function ReasonChoice({
  chosen,
  onChoose,
}: {
  /** Null for all. */
  readonly chosen: string | null;
  readonly onChoose: (reason: string | null) => void;
}) {
  const known = useAtom(reasons);
  return (
    <label>
      Reason{" "}
      <select
        value={chosen ?? ALL}
        onChange={({ currentTarget: { value } }) => onChoose(value === ALL ? null : value)}
      >
        {[ALL, ...known.map((one) => one.reason)].map((word) => (
          <option key={word}>{word}</option>
        ))}
      </select>
    </label>
  );
}
