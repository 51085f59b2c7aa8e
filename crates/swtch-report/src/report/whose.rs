//! Whose code a frame is: the program's own, or that of a library which waits on its behalf.
//!
//! By the file that the code is in, not by lists of functions: only what compilers put into the program's own file (the
//! libraries of Rust and Go, what C++'s headers say, what a program depends on) is told by its name or its source.

use std::path::Path;

use swtch_core::Frame;

/// Libraries whose functions wait on behalf of the program, and do not show why it waits.
const WAITING_LIBRARIES: [&str; 5] = ["[libc.", "[libc-", "[libpthread", "[ld-", "[vdso"];

/// Functions of the libraries of Rust, C++ and Go, which are linked into the program's own file.
const WAITING_PREFIXES: [&str; 9] = [
    "std::",
    "<std::",
    "core::",
    "<core::",
    "runtime.",
    "uv_",
    "v8::",
    "Builtins_",
    "__pyx_f_6uvloop",
];

/// Where the sources of such libraries are.
const LIBRARY_SOURCES: [&str; 3] = ["/usr/include/", "/usr/lib/", "/rustc/"];

/// Parts of the paths of what cargo, go and pip fetch for a program.
const FETCHED_SOURCES: [&str; 5] = [
    "/registry/src/",
    "/git/checkouts/",
    "/pkg/mod/",
    "/site-packages/",
    "/dist-packages/",
];

/// What stands for the modules of functions of Python, of methods of Java, and of functions that others have compiled while
/// the program ran.
const PYTHON: &str = "[python]";
const JAVA: &str = "[java]";
const COMPILED: &str = "[jit]";

/// Sources of the libraries of Node, and names of those of Java.
const RUNTIME_LIBRARIES: [&str; 6] = ["node:", "java.", "javax.", "jdk.", "sun.", "com.sun."];

/// The most characters of a function's name in a sentence.
const MOST_OF_A_NAME: usize = 48;

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The program's, or that of a library that came with it.
    Program,
    /// A library's that the system brought.
    Library,
    /// That of the C library, or of another that says nothing of why the program waits; or it has no name.
    Waiting,
}

impl Whose {
    /// Whose a frame is, which is shown by these words.
    pub fn of(frame: &Frame, words: &str) -> Self {
        let source = frame.file.as_deref().unwrap_or_default();
        if frame.module.as_deref() == Some(PYTHON) {
            return Self::of_python(frame.symbol.as_deref().unwrap_or_default(), source);
        }
        if matches!(frame.module.as_deref(), Some(COMPILED | JAVA)) {
            return Self::of_compiled(frame.symbol.as_deref().unwrap_or_default(), source);
        }
        let is_of_library = LIBRARY_SOURCES
            .iter()
            .any(|directory| source.starts_with(directory));
        let is_fetched = FETCHED_SOURCES.iter().any(|part| source.contains(part));
        let module = frame.module.as_deref().unwrap_or_default();
        let symbol = frame.symbol.as_deref().unwrap_or_default();
        match () {
            () if is_of_library || !is_own(words) || is_of_go(symbol, source) => Self::Waiting,
            () if is_fetched || is_of_system(Path::new(module)) => Self::Library,
            () => Self::Program,
        }
    }

    /// What has no name of a language is a part of the runtime: `Builtin:ArrayPush`, `Interpreter`.
    fn of_compiled(name: &str, source: &str) -> Self {
        let is_of = |library: &str| name.starts_with(library) || source.starts_with(library);
        let is_fetched = source.contains("/node_modules/");
        let is_of_runtime = source.is_empty() && !name.contains('.');
        match () {
            () if is_of_runtime => Self::Waiting,
            () if is_fetched || RUNTIME_LIBRARIES.iter().any(|library| is_of(library)) => {
                Self::Library
            }
            () => Self::Program,
        }
    }

    /// The libraries of Python itself are in a directory of its version, or frozen into the interpreter.
    fn of_python(name: &str, source: &str) -> Self {
        let is_fetched = FETCHED_SOURCES.iter().any(|part| source.contains(part));
        let is_own = source.contains("/lib/python3") || source.starts_with("<frozen ");
        match is_fetched || is_own || name.starts_with(BUILT_IN) {
            true => Self::Library,
            false => Self::Program,
        }
    }
}

/// What methods of Python's locks begin with, which have no source: `_thread.lock.acquire`.
const BUILT_IN: &str = "_thread.";

/// The function of Python that runs programs, where it was not known which.
const PYTHON_LOOP: &str = "_PyEval_EvalFrameDefault";

/// Returns true for words of a function that an interpreter runs.
pub fn is_of_interpreted(frame: &str) -> bool {
    [PYTHON, JAVA, COMPILED]
        .iter()
        .any(|module| frame.ends_with(module))
}

/// Returns true for a function of Go's own library: no address of a host begins its package, and its source is in the
/// directory of the package below `src`, where Go was built, or in that alone, if such paths were left out (`-trimpath`).
fn is_of_go(symbol: &str, source: &str) -> bool {
    if !source.ends_with(".go") && !source.ends_with(".s") {
        return false;
    }
    let last = symbol.rfind('/').map_or(0, |slash| slash + 1);
    let Some((name, function)) = symbol[last..].split_once('.') else {
        return false;
    };
    // Some functions of the runtime have the name of the package that calls them: `sync.runtime_Semacquire`.
    let is_of_runtime = source.starts_with("runtime/") || source.contains("/src/runtime/");
    if function.starts_with("runtime_") && is_of_runtime {
        return true;
    }
    let package = &symbol[..last + name.len()];
    let is_of_host = package
        .split('/')
        .next()
        .is_some_and(|first| first.contains('.'));
    let is_trimmed = source
        .strip_prefix(package)
        .is_some_and(|rest| rest.starts_with('/'));
    let is_in_place = is_trimmed || source.contains(&format!("/src/{package}/"));
    // Programs may lie below a directory of that name, too.
    is_in_place && !is_of_host && package != "main"
}

/// Returns true for a file that lies where a distribution puts shared libraries. Modules of programs lie further down.
fn is_of_system(module: &Path) -> bool {
    let Some(directory) = module.parent().and_then(Path::to_str) else {
        return false;
    };
    let below = directory.strip_prefix("/usr").unwrap_or(directory);
    let is_triplet = |name: &str| name.contains("-linux-") && !name.contains('/');
    match below.strip_prefix("/lib/") {
        Some(name) => is_triplet(name),
        None => ["/lib", "/lib64"].contains(&below),
    }
}

/// Of a program that an interpreter runs, native functions say nothing. Where it is not known which functions it runs,
/// those of the interpreter say nothing.
pub fn seen_by_its_language(frames: &mut [(&str, Whose)]) {
    let is_function =
        |(words, whose): &(&str, Whose)| is_of_interpreted(words) && *whose != Whose::Waiting;
    let is_known = frames.iter().any(is_function);
    let in_loop = frames
        .iter()
        .find(|(words, _)| words.starts_with(PYTHON_LOOP));
    let interpreter = in_loop.and_then(|(words, _)| words.rsplit_once(" ["));
    let interpreter = interpreter.map(|(_, module)| module.to_owned());
    for (words, whose) in frames {
        let module = words.rsplit_once(" [").map(|(_, module)| module);
        let is_interpreter = interpreter.is_some() && module == interpreter.as_deref();
        if (is_known && !is_of_interpreted(words)) || is_interpreter {
            *whose = Whose::Waiting;
        }
    }
}

/// Places in a stack of the frames that show why the program waits, the innermost first: its own, or where there are
/// none but `main`, those of libraries too.
pub fn telling_frames<'f>(frames: impl Iterator<Item = (&'f str, Whose)> + Clone) -> Vec<usize> {
    let places = |wanted: fn(Whose) -> bool| {
        let with_place = frames.clone().enumerate();
        let wanted = with_place.filter(move |(_, (_, whose))| wanted(*whose));
        wanted.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let mut own = frames.clone().filter(|(_, whose)| *whose == Whose::Program);
    if own.any(|(words, _)| function_name(words) != "main") {
        return places(|whose| whose == Whose::Program);
    }
    places(|whose| whose != Whose::Waiting)
}

/// The function's name in the words of a frame.
pub fn function_name(frame: &str) -> &str {
    let end = frame.find("+0x").or_else(|| frame.find(" ["));
    &frame[..end.unwrap_or(frame.len())]
}

/// A function's name without what it is generic over, without its parameters, and without what a compiler that made
/// several of one has added: `take<alloc::vec::Vec<u8>>` is `take`. What is still long is cut.
pub fn short_name(name: &str) -> String {
    let name = name.split_once(" [clone ").map_or(name, |(name, _)| name);
    let name = &name.replace("(anonymous namespace)::", "");
    let mut short = String::new();
    let mut depth = 0_u32;
    for (place, c) in name.char_indices() {
        match c {
            // `<Pool as Queue>::take` begins with it, and in Python it is part of a name: `retry.<locals>.wrapper`.
            '<' if name[..place].ends_with('.') => short.push(c),
            '<' | '(' if place > 0 => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            c if depth == 0 => short.push(c),
            _ => {}
        }
    }
    match short.char_indices().nth(MOST_OF_A_NAME) {
        Some((end, _)) => format!("{}…", &short[..end]),
        None => short,
    }
}

/// Returns true if a frame is of none of the libraries that wait, and has a name.
fn is_own(frame: &str) -> bool {
    let is_of_rust = WAITING_PREFIXES
        .iter()
        .any(|prefix| frame.starts_with(prefix));
    let is_start = frame.starts_with("_start+") || frame.starts_with("_start ");
    !is_of_c_library(frame) && !is_of_rust && !is_start && !frame.starts_with("0x")
}

/// Returns true if a frame is of the C library, by the name of its file.
pub fn is_of_c_library(frame: &str) -> bool {
    WAITING_LIBRARIES
        .iter()
        .any(|library| frame.contains(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(symbol: &str, module: &str, file: Option<&str>) -> (String, Whose) {
        let frame = Frame {
            symbol: Some(symbol.to_owned()),
            module: Some(module.to_owned()),
            file: file.map(str::to_owned),
            ..Frame::default()
        };
        let words = super::super::stack::frame_words(&frame);
        let whose = Whose::of(&frame, &words);
        (words, whose)
    }

    fn told(frames: &[(String, Whose)]) -> Vec<&str> {
        let known = frames.iter().map(|(words, whose)| (words.as_str(), *whose));
        let places = telling_frames(known);
        places
            .into_iter()
            .map(|place| function_name(&frames[place].0))
            .collect()
    }

    #[test]
    fn a_program_waits_in_its_own_function_and_not_in_the_library_that_it_calls() {
        let frames = [
            frame("syscall", "/usr/lib/x86_64-linux-gnu/libc.so.6", None),
            frame(
                "g_cond_wait",
                "/lib/x86_64-linux-gnu/libglib-2.0.so.0",
                None,
            ),
            frame(
                "__gthread_mutex_lock",
                "/app/server",
                Some("/usr/include/c++/12/mutex"),
            ),
            frame("take_job", "/app/server", Some("/home/me/server.cc")),
            frame("g_thread_proxy", "/usr/lib64/libglib-2.0.so.0", None),
            frame("main", "/app/server", None),
        ];
        assert_eq!(told(&frames), ["take_job", "main"]);
    }

    #[test]
    fn where_a_program_is_main_alone_its_library_tells_more() {
        let frames = [
            frame("read", "/lib/libc.so.6", None),
            frame(
                "Perl_pp_readline",
                "/usr/lib/x86_64-linux-gnu/libperl.so.5.36",
                None,
            ),
            frame("main", "/usr/bin/perl", None),
        ];
        assert_eq!(told(&frames), ["Perl_pp_readline", "main"]);
    }

    #[test]
    fn functions_of_go_and_of_what_was_fetched_are_not_the_programs() {
        for (symbol, source, whose) in [
            ("runtime.futex.abi0", None, Whose::Waiting),
            (
                "net/http.(*conn).serve",
                Some("/usr/local/go/src/net/http/server.go"),
                Whose::Waiting,
            ),
            ("sync.(*Mutex).Lock", Some("sync/mutex.go"), Whose::Waiting),
            (
                "internal/sync.runtime_SemacquireMutex",
                Some("/usr/lib/go-1.26/src/runtime/sema.go"),
                Whose::Waiting,
            ),
            (
                "shop.runtime_report",
                Some("/home/me/shop/report.go"),
                Whose::Program,
            ),
            (
                "main.(*Store).Put",
                Some("/home/me/src/shop/store.go"),
                Whose::Program,
            ),
            (
                "main.main",
                Some("example.com/shop/main.go"),
                Whose::Program,
            ),
            (
                "github.com/me/shop.(*Store).Put",
                Some("/home/me/go/src/github.com/me/shop/store.go"),
                Whose::Program,
            ),
            (
                "main.serve",
                Some("/home/me/src/main/serve.go"),
                Whose::Program,
            ),
            (
                "example.com/shop/db.Open",
                Some("/home/me/shop/db/open.go"),
                Whose::Program,
            ),
            (
                "github.com/x/y.F",
                Some("/home/me/go/pkg/mod/github.com/x/y@v1.2.0/f.go"),
                Whose::Library,
            ),
            (
                "lock_api::lock",
                Some("/home/me/.cargo/registry/src/index/lock_api-0.4/src/lib.rs"),
                Whose::Library,
            ),
            ("handle", Some("/app/src/handle/main.c"), Whose::Program),
        ] {
            assert_eq!(frame(symbol, "/app/shop", source).1, whose, "{symbol}");
        }
    }

    #[test]
    fn a_program_of_python_is_told_by_its_own_functions() {
        let python = |symbol, file| frame(symbol, "[python]", Some(file));
        let mut frames = vec![
            frame("read", "/lib/libc.so.6", None),
            frame("queue_get", "/usr/bin/python3.11", None),
            python("Queue.get", "/usr/lib/python3.11/queue.py"),
            python(
                "Session.send",
                "/app/venv/lib/python3.11/site-packages/requests/sessions.py",
            ),
            python("Worker.consume", "/app/worker.py"),
            python("Thread._bootstrap", "/usr/lib/python3.11/threading.py"),
            frame("thread_run", "/usr/bin/python3.11", None),
        ];
        let told_of = |frames: &[(String, Whose)]| {
            let mut known: Vec<_> = frames
                .iter()
                .map(|(words, whose)| (words.as_str(), *whose))
                .collect();
            seen_by_its_language(&mut known);
            let places = telling_frames(known.iter().copied());
            let names = places
                .into_iter()
                .map(|place| function_name(known[place].0).to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(told_of(&frames), ["Worker.consume"]);
        // One of which only the interpreter's functions are known.
        let native = [
            frame("PyThread_release_lock", "/usr/bin/python3.11", None),
            frame("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", None),
            frame("run_script", "/app/server", None),
        ];
        assert_eq!(told_of(&native), ["run_script"]);
        // One that waits for work is in the library alone.
        frames.remove(4);
        assert_eq!(
            told_of(&frames),
            ["Queue.get", "Session.send", "Thread._bootstrap"]
        );
    }

    #[test]
    fn modules_of_a_program_are_its_own() {
        for (module, is_system) in [
            ("/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0", true),
            ("/lib64/libssl.so.3", true),
            ("/usr/lib/libz.so.1", true),
            ("/usr/lib/apache2/modules/mod_mpm_event.so", false),
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", false),
            ("/usr/lib/postgresql/15/bin/postgres", false),
            ("/usr/local/lib/libmine.so", false),
            ("/opt/app/lib/libapp.so", false),
            ("", false),
        ] {
            assert_eq!(is_of_system(Path::new(module)), is_system, "{module}");
        }
    }

    #[test]
    fn a_name_in_a_sentence_is_short() {
        for (name, short) in [
            ("take_job", "take_job"),
            ("take<alloc::vec::Vec<u8>, core::fmt::Error>", "take"),
            ("<Pool as Queue<u8>>::take", "<Pool as Queue>::take"),
            ("handle(Request const&)", "handle"),
            ("retry.<locals>.wrapper", "retry.<locals>.wrapper"),
            ("run.<locals>.<lambda>", "run.<locals>.<lambda>"),
            ("Log::flush [clone .isra.0]", "Log::flush"),
            ("(anonymous namespace)::handle(int)", "handle"),
            ("node::(anonymous namespace)::run(void*)", "node::run"),
        ] {
            assert_eq!(short_name(name), short);
        }
        assert_eq!(short_name(&"x".repeat(500)).chars().count(), 49);
    }
}
