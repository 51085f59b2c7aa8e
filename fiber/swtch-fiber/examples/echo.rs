//! A TCP echo server: one task per connection, written as if each had a thread of its own.
//!
//! ```text
//! cargo run --release -p swtch-fiber --example echo
//! ```
//!
//! `--help` shows the options. Prints its address, and at Ctrl-C the counts of both levels:
//! switches between workers are counted by the schedulers, switches between threads by the kernel.
//! `echo_load` generates load for it.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use swtch_fiber::net::{TcpListener, TcpStream};
use swtch_fiber::observe::Page;
use swtch_fiber::{Builder, Io, Mode, Runtime, spawn};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The work that the server has done so far.
#[derive(Default)]
struct Served {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

const HELP: &str = "\
A TCP echo server: a task per connection. Ctrl-C ends it and shows the switches of both levels.

cargo run --release -p swtch-fiber --example echo -- [ADDRESS] [OPTION VALUE]...

  ADDRESS          to listen on [127.0.0.1:0, a free port]
  --schedulers N   [one per CPU]
  --mode MODE      fiber or thread [fiber]
  --io IO          auto, uring or epoll [auto]
";

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), Failure> {
    let (address, settings) = arguments()?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let runtime = settings.name("echo").build()?;
    let listener = TcpListener::bind(address)?;
    let driver = match runtime.io_driver() {
        Io::Uring => "io_uring",
        _ => "epoll",
    };
    println!(
        "listening on {}, by {driver}; Ctrl-C ends it",
        listener.local_addr()?
    );
    let served = Arc::new(Served::default());
    let theirs = served.clone();
    let accepts = runtime.spawn(move || accept_all(&listener, &theirs))?;
    // Blocks this thread, which is not a worker, until a signal asks for the end.
    signals.forever().next();
    accepts.cancel();
    // Only a failure is reported, since we cancelled the task ourselves.
    if let Ok(Err(error)) = accepts.join() {
        eprintln!("accepting: {error}");
    }
    print_counters(&served)?;
    // Connections that are still open are unwound with their tasks.
    drop(runtime);
    Ok(())
}

fn accept_all(listener: &TcpListener, served: &Arc<Served>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        served.connections.fetch_add(1, Ordering::Relaxed);
        let served = served.clone();
        let echoes = spawn(move || echo(&stream, &served));
        // Without a task only this connection is closed, and the others continue.
        if let Err(error) = echoes {
            eprintln!("a connection was dropped: {error}");
        }
    }
}

/// Sends back what comes in, until the other end closes. An error ends this connection only.
fn echo(mut stream: &TcpStream, served: &Served) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 16 << 10];
    loop {
        let bytes = stream.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..bytes])?;
        served.requests.fetch_add(1, Ordering::Relaxed);
        served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn print_counters(served: &Served) -> Result<(), Failure> {
    let requests = served.requests.load(Ordering::Relaxed);
    let per_request = |count: u64| count as f64 / requests.max(1) as f64;
    let page = Page::of_process(std::process::id())?;
    let snapshot = page.snapshot()?;
    let user: u64 = snapshot
        .schedulers
        .iter()
        .map(|scheduler| scheduler.context_switches_count)
        .sum();
    let os = os_switches()?;
    println!(
        "connections      {:>12}",
        served.connections.load(Ordering::Relaxed)
    );
    println!("requests         {requests:>12}");
    println!(
        "bytes            {:>12}",
        served.bytes.load(Ordering::Relaxed)
    );
    println!("                        count  per request");
    println!("user switches    {user:>12} {:>12.3}", per_request(user));
    for (name, count) in [("OS, voluntary", os.0), ("OS, involuntary", os.1)] {
        println!("{name:<16} {count:>12} {:>12.3}", per_request(count));
    }
    Ok(())
}

/// Voluntary and involuntary switches of all live threads of this process.
fn os_switches() -> io::Result<(u64, u64)> {
    let mut sums = (0, 0);
    for thread in std::fs::read_dir("/proc/self/task")? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let count = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.trim().parse().ok())
                .unwrap_or(0)
        };
        sums.0 += count("voluntary_ctxt_switches:");
        sums.1 += count("nonvoluntary_ctxt_switches:");
    }
    Ok(sums)
}

fn arguments() -> Result<(String, Builder), Failure> {
    let mut address = "127.0.0.1:0".to_owned();
    let mut settings = Runtime::builder();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            address = word;
            continue;
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        settings = match (word.as_str(), value.as_str()) {
            ("--schedulers", number) => {
                let number = number.parse();
                let refusal = |_| format!("--schedulers {value}: this is no number of them");
                settings.schedulers(number.map_err(refusal)?)
            }
            ("--mode", "fiber") => settings.mode(Mode::Fiber),
            ("--mode", "thread") => settings.mode(Mode::Thread),
            ("--io", "auto") => settings.io(Io::Auto),
            ("--io", "uring") => settings.io(Io::Uring),
            ("--io", "epoll") => settings.io(Io::Epoll),
            _ => {
                return Err(format!("{word} {value}: not known; --help tells what is").into());
            }
        };
    }
    Ok((address, settings))
}
