// One of a few words: a row of buttons of which one is pressed.

export function Choice<Value extends string>({
  label,
  options,
  chosen,
  onChoose,
}: {
  readonly label: string;
  readonly options: readonly { readonly value: Value; readonly word: string }[];
  readonly chosen: Value;
  readonly onChoose: (value: Value) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(({ value, word }) => (
        <button
          key={value}
          type="button"
          aria-pressed={value === chosen}
          onClick={() => onChoose(value)}
        >
          {word}
        </button>
      ))}
    </div>
  );
}
