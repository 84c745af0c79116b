//! `takt new`: a small project with a loop that Takt runs, judges and gates.

use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use takt_files::Folder;

use super::CommandResult;
use crate::args::{Language, New};

/// Longest name of a project: a part of file names and of the label of its runs.
const MAX_NAME: usize = 64;

/// Names of our own packages: a project of this name would hide the one that it depends on.
const OURS: [&str; 3] = ["takt", "takt-sdk", "takt_sdk"];

/// A file of a project: its path in it, its text, and whether it is a program.
struct Template {
    path: &'static str,
    text: &'static str,
    is_program: bool,
}

/// The file `$path` of a project, from `$source` in the folder of templates.
macro_rules! template {
    ($path:literal, $source:literal) => {
        Template { path: $path, text: include_str!(concat!("../../templates/", $source)), is_program: false }
    };
    ($path:literal, $source:literal, program) => {
        Template { is_program: true, ..template!($path, $source) }
    };
}

/// Files of every project.
const COMMON: [Template; 5] = [
    template!("README.md", "common/README.md"),
    template!("program.toml", "common/program.toml"),
    template!("campaign.toml", "common/campaign.toml"),
    template!("ci/gate.sh", "common/gate.sh", program),
    template!(".github/workflows/takt.yml", "common/takt.yml"),
];

/// What a language adds, and its words in the files of every project.
struct Kit {
    files: &'static [Template],
    /// Words of the command of `program.toml`.
    command: &'static str,
    /// Builds the project, in its folder.
    build: &'static str,
    /// What git leaves alone.
    ignored: &'static str,
    /// What a reader needs before the first build.
    needs: &'static str,
}

const C_NEEDS: &str = "CMake and a C compiler. With libtakt the loop declares itself to Takt: install `libtakt-dev`, or run \
`tools/libtakt PREFIX` in Takt's source folder and configure with `-DCMAKE_PREFIX_PATH=PREFIX`. Without it, Takt follows the loop by the \
kernel's events";

fn kit(language: Language) -> Kit {
    const CMAKE: &str = "cmake -B build && cmake --build build";
    match language {
        Language::C => Kit {
            files: &[
                template!("CMakeLists.txt", "c/CMakeLists.txt"),
                template!("controller.c", "c/controller.c"),
                template!("without_takt.h", "c/without_takt.h"),
            ],
            command: "\"./build/controller\", \"{rate}\"",
            build: CMAKE,
            ignored: "/build\n",
            needs: C_NEEDS,
        },
        Language::Cpp => Kit {
            files: &[
                template!("CMakeLists.txt", "cpp/CMakeLists.txt"),
                template!("controller.cpp", "cpp/controller.cpp"),
                template!("without_takt.hpp", "cpp/without_takt.hpp"),
            ],
            command: "\"./build/controller\", \"{rate}\"",
            build: CMAKE,
            ignored: "/build\n",
            needs: C_NEEDS,
        },
        Language::Python => Kit {
            files: &[
                template!("controller.py", "python/controller.py"),
                template!("without_takt.py", "python/without_takt.py"),
            ],
            command: "\"python3\", \"controller.py\", \"{rate}\"",
            build: "python3 -m py_compile controller.py",
            ignored: "__pycache__\n/.venv\n",
            needs: "Python 3.9 or newer. With the module `takt` the loop declares itself to Takt: `tools/wheel` in Takt's source folder \
builds the wheel, `pip install takt_sdk-*.whl` installs it (the package `takt` of the Python Package Index is another program). Without it, \
Takt follows the loop by the kernel's events",
        },
        Language::Rust => Kit {
            files: &[template!("Cargo.toml", "rust/Cargo.toml.in"), template!("src/main.rs", "rust/main.rs")],
            command: "\"./target/release/controller\", \"{rate}\"",
            build: "cargo build --release",
            ignored: "/target\n",
            needs: "Rust 1.94 or newer, and the crate `takt-sdk`: see Cargo.toml",
        },
        Language::Ros2 => Kit {
            files: &[
                template!("package.xml", "ros2/package.xml"),
                template!("CMakeLists.txt", "ros2/CMakeLists.txt"),
                template!("src/controller.cpp", "ros2/controller.cpp"),
                template!("src/without_takt.hpp", "cpp/without_takt.hpp"),
            ],
            command: "\"./install/@NAME@/lib/@NAME@/controller\", \"--ros-args\", \"-p\", \"rate:={rate}\"",
            build: "colcon build",
            ignored: "/build\n/install\n/log\n",
            needs: "ROS 2 with `colcon`, sourced in this shell. With libtakt the loop declares itself to Takt: install `libtakt-dev`, or run \
`tools/libtakt PREFIX` in Takt's source folder and set the variable `CMAKE_PREFIX_PATH`. Without it, Takt follows the loop by the kernel's \
events",
        },
    }
}

pub fn run(args: &New) -> CommandResult {
    let name = project_name(&args.name, args.language)?;
    let kit = kit(args.language);
    let shown = args.name.display();
    let folder = Folder::create(&args.name).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{shown} exists: `takt new` changes no folder that is there; choose another name")
        }
        _ => format!("{shown}: {error}"),
    })?;
    if let Err(error) = fill(&folder, &kit, name) {
        // A part of a project is worse than none, and nobody else has put anything into it.
        let _ = std::fs::remove_dir_all(&args.name);
        return Err(format!("{shown}: {error}").into());
    }
    println!("{shown} is a project of {} files. Go on with:\n", COMMON.len() + kit.files.len() + 1);
    let steps = [
        (format!("cd {} && {}", quoted(&shown.to_string()), kit.build), "builds the program"),
        ("takt run program.toml --seconds 30".to_owned(), "runs it and judges its loop; as root"),
        ("takt report takt-runs".to_owned(), "figures, late cycles and their causes"),
    ];
    let width = steps.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, does) in steps {
        println!("  {command:width$}  # {does}");
    }
    println!("\nNeeded: {}.", kit.needs);
    Ok(ExitCode::SUCCESS)
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The project's name: the last part of its path, which tools of its language take as a name.
fn project_name(path: &Path, language: Language) -> Result<&str, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_ros = language == Language::Ros2;
    let fits = |c: char| match is_ros {
        // REP 144.
        true => c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_',
        false => c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    };
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let ends = !is_ros || !name.ends_with('_') && !name.contains("__");
    if OURS.contains(&name) {
        return Err(format!(
            "the project cannot have the name \"{name}\", which is a package of Takt itself"
        ));
    }
    if begins && ends && name.chars().all(fits) && name.len() <= MAX_NAME {
        return Ok(name);
    }
    let accepted = match is_ros {
        true => {
            "a name of a ROS 2 package: lower-case letters, digits and single underscores, a letter first, such as arm_control"
        }
        false => "letters, digits, - and _, a letter first, such as arm-control",
    };
    let received = takt_files::quoted(&path.to_string_lossy());
    Err(format!(
        "{received} gives no name of a project; accepted: {accepted} (at most {MAX_NAME} characters)"
    ))
}

/// Writes the files of a project.
fn fill(folder: &Folder, kit: &Kit, name: &str) -> std::io::Result<()> {
    let sdk = sdk();
    let words = |text: &str| {
        let text = text.replace("@COMMAND@", kit.command).replace("@BUILD@", kit.build);
        let text = text.replace("@NEEDS@", kit.needs).replace("@SDK@", &sdk);
        text.replace("@NAME@", name)
    };
    for template in COMMON.iter().chain(kit.files) {
        write(folder, template.path, &words(template.text), template.is_program)?;
    }
    folder.write(".gitignore", format!("{}/takt-runs\n/gate.xml\n", kit.ignored))
}

/// Writes the file `path`, and the folders that it lies in.
fn write(folder: &Folder, path: &str, text: &str, is_program: bool) -> std::io::Result<()> {
    if let Some((first, rest)) = path.split_once('/') {
        return write(&folder.subfolder(first)?, rest, text, is_program);
    }
    let mut draft = folder.draft(path)?;
    draft.write_all(text.as_bytes())?;
    if is_program {
        let file = draft.file()?;
        let mode = file.metadata()?.permissions().mode();
        // Whoever may read it may run it.
        file.set_permissions(Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
    }
    draft.finish()
}

/// The line of `Cargo.toml` with the crate of loops: from the source folder that this program was
/// built in, or else from the registry.
fn sdk() -> String {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let program = std::env::current_exe().ok();
    let above = program.iter().flat_map(|path| path.ancestors());
    let found =
        above.map(|folder| folder.join("crates/takt-sdk")).find(|path| path.join("Cargo.toml").is_file());
    let number = VERSION.rsplit_once('.').map_or(VERSION, |(number, _)| number);
    match found.as_ref().and_then(|path| path.to_str()) {
        Some(path) => format!(
            "# From Takt's source folder, whose `takt` began this project; without `path` from the registry.\n\
             takt-sdk = {{ version = \"{number}\", path = {} }}",
            toml::Value::from(path)
        ),
        None => format!(
            "# Until it is released: takt-sdk = {{ version = \"{number}\", path = \"TAKT/crates/takt-sdk\" }}, where TAKT is Takt's \
             source folder.\ntakt-sdk = \"{number}\""
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_tools_of_a_language_take() {
        use Language::{C, Ros2, Rust};
        for (path, language) in
            [("demo", C), ("a/b/arm-control", Rust), ("./Arm_2", C), ("arm_2", Ros2), ("/tmp/x", Ros2)]
        {
            let name = Path::new(path).file_name().unwrap().to_str().unwrap();
            assert_eq!(project_name(Path::new(path), language).as_deref(), Ok(name));
        }
        for (path, language) in [
            ("", C),
            ("..", C),
            ("/", C),
            ("2nd", C),
            ("-x", C),
            ("a b", C),
            ("a;b", C),
            ("ärm", Rust),
            ("a\"b", Rust),
            ("Arm", Ros2),
            ("arm-control", Ros2),
            ("arm__control", Ros2),
            ("arm_", Ros2),
            ("takt", C),
            ("x/takt-sdk", Rust),
        ] {
            assert!(project_name(Path::new(path), language).is_err(), "{path}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        assert!(project_name(Path::new(&long), C).is_err());
    }

    #[test]
    fn no_placeholder_is_left_in_a_project() {
        for language in [Language::C, Language::Cpp, Language::Python, Language::Rust, Language::Ros2] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("demo");
            run(&New { language, name: path.clone() }).unwrap();
            let mut files = vec![path];
            let mut count = 0;
            while let Some(path) = files.pop() {
                if path.is_dir() {
                    files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                    continue;
                }
                count += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["@COMMAND@", "@BUILD@", "@NEEDS@", "@SDK@", "@NAME@"] {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
            }
            assert_eq!(count, COMMON.len() + kit(language).files.len() + 1);
        }
    }
}
