//! `swtch cost --of`: what is refused, and that nothing is left behind. What it measures is tested where it is estimated.

use super::*;

/// A program that works for a moment and sleeps, until it is killed.
const WORKS_AND_SLEEPS: &str = "exec 3<> <(:); \
    while :; do i=0; while [ $i -lt 50 ]; do i=$((i+1)); done; read -t 0.0005 -u 3; done";

/// A process that is killed when it is dropped.
struct Measured(Child);

impl Measured {
    fn start(script: &str) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]);
        Self(shell.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_process_that_is_not_there_is_no_program() {
    let home = PriceListHome::new();
    let output = home.cost(&["--of", "-p", "4194304", "-d", "1"]);
    assert_refused(&output, "there is no process 4194304");
}

#[test]
fn a_program_and_a_price_list_are_not_measured_at_once() {
    let home = PriceListHome::new();
    assert_refused(
        &home.cost(&["--of", "-p", "1", "--save"]),
        "cannot be used with",
    );
    assert_refused(&home.cost(&["--of"]), "required");
    let output = home.cost(&["--of", "-p", "1", "--budget", "90%"]);
    assert_refused(&output, "give 0.01% to 20%");
}

/// It has no units of work that end with a block, and what it does cannot be compared with itself.
#[test]
#[ignore = "needs root"]
fn root_a_program_that_never_blocks_is_asked_for_spans() {
    let _machine = beside_others();
    let busy = Measured::start("while :; do :; done");
    // What others do on its CPU is not its work.
    let _neighbours = [0; 3].map(|_| Measured::start(WORKS_AND_SLEEPS));
    let home = PriceListHome::new();
    let output = home.cost(&["--of", "-p", &busy.pid(), "-d", "2"]);
    assert_refused(&output, "--span FILE:FUNCTION");
}

#[test]
#[ignore = "needs root"]
fn root_a_program_that_does_nothing_is_measured_while_it_works() {
    let _machine = beside_others();
    let idle = Measured::start("exec sleep 600");
    let home = PriceListHome::new();
    let output = home.cost(&["--of", "-p", &idle.pid(), "-d", "2"]);
    assert_refused(&output, "measure it while it works");
}

/// The injector's threads end with it, the recorder sees that its parent is gone, and the program goes on where it could.
#[test]
#[ignore = "needs root"]
fn root_a_killed_experiment_leaves_no_process_behind() {
    let _machine = alone();
    let program = Measured::start(WORKS_AND_SLEEPS);
    let pid = program.pid();
    let allowed = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"));
        line.unwrap().to_owned()
    };
    let before = allowed();
    let home = PriceListHome::new();
    let mut command = home.swtch(&["cost", "--of", "-p", &pid, "-d", "60", "--budget", "5%"]);
    let mut experiment = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first recorder looks, the second is there while switches are injected.
    await_children(experiment.id(), 2);
    thread::sleep(Duration::from_millis(500));
    let recorders = crate::machine::children_of(experiment.id());
    crate::machine::send(experiment.id(), libc::SIGKILL);
    experiment.wait().unwrap();
    wait_until("the recorder has ended", || {
        let lives = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        !recorders.iter().any(lives)
    });
    assert_eq!(allowed(), before);
}
