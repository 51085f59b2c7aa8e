//! Load for the example `echo`: connections that each send, wait for the echo, and send again.
//!
//! ```text
//! cargo run --release -p swtch-fiber --example echo_load -- ADDRESS
//! ```
//!
//! `--help` shows the options. Prints one line: round trips per second, and the median and the tail
//! of their times. The load needs a CPU of its own (one scheduler).

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use swtch_fiber::net::TcpStream;
use swtch_fiber::{JoinHandle, Runtime, spawn};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct EchoLoad {
    address: String,
    connections: usize,
    rounds: usize,
    bytes: usize,
}

const HELP: &str = "\
Load for the example `echo`: connections that each send, wait for the echo, and send again.

cargo run --release -p swtch-fiber --example echo_load -- ADDRESS [OPTION N]...

  --connections N   at the same time [100]
  --rounds N        round trips of each [1000]
  --bytes N         of each message [64]
";

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match arguments().and_then(|load| run(&load)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(load: &EchoLoad) -> Result<(), Failure> {
    let runtime = Runtime::builder().schedulers(1).name("load").build()?;
    let theirs = load.clone();
    let result = runtime.run(move || all_connections(&theirs));
    let (mut times, took) = result.map_err(|error| error.to_string())??;
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{} connections, {} round trips: {:.0}/s, p50 {:.1} µs, p99 {:.1} µs",
        load.connections,
        times.len(),
        times.len() as f64 / took.as_secs_f64(),
        at(50).as_secs_f64() * 1e6,
        at(99).as_secs_f64() * 1e6,
    );
    Ok(())
}

fn all_connections(load: &EchoLoad) -> Result<(Vec<Duration>, Duration), Failure> {
    // All connections are made before the first one sends.
    let mut streams = Vec::new();
    for _ in 0..load.connections {
        let stream = TcpStream::connect(&load.address)?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let begin = Instant::now();
    let mut clients: Vec<JoinHandle<std::io::Result<Vec<Duration>>>> = Vec::new();
    for stream in streams {
        let (rounds, bytes) = (load.rounds, load.bytes);
        clients.push(spawn(move || round_trips(&stream, rounds, bytes))?);
    }
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.join().map_err(|error| error.to_string())??);
    }
    Ok((times, begin.elapsed()))
}

fn round_trips(
    mut stream: &TcpStream,
    rounds: usize,
    bytes: usize,
) -> std::io::Result<Vec<Duration>> {
    let sent = vec![b'x'; bytes];
    let mut back = vec![0; bytes];
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        times.push(begin.elapsed());
    }
    Ok(times)
}

fn arguments() -> Result<EchoLoad, Failure> {
    let mut words = std::env::args().skip(1);
    let mut load = EchoLoad {
        address: words
            .next()
            .ok_or("the address of an echo server is needed; --help tells the rest")?,
        connections: 100,
        rounds: 1000,
        bytes: 64,
    };
    while let Some(word) = words.next() {
        let value: usize = words
            .next()
            .ok_or(format!("{word} needs a value"))?
            .parse()
            .map_err(|_| format!("{word} needs a number"))?;
        match word.as_str() {
            "--connections" => load.connections = value.max(1),
            "--rounds" => load.rounds = value.max(1),
            "--bytes" => load.bytes = value.max(1),
            _ => return Err(format!("{word}: not known; --help tells what is").into()),
        }
    }
    Ok(load)
}
