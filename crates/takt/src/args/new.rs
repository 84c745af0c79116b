//! `takt new`

use std::path::PathBuf;

use clap::ValueEnum;

/// Languages that a project can be begun in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// C11, built with CMake
    C,
    /// C++17, built with CMake
    #[value(alias = "c++", alias = "cxx")]
    Cpp,
    /// Python 3.9 or newer
    #[value(alias = "py")]
    Python,
    /// Rust, built with Cargo
    Rust,
    /// A ROS 2 package in C++17
    #[value(alias = "ros")]
    Ros2,
}

/// `takt new`
#[derive(Debug, clap::Args)]
pub struct New {
    /// Language of the project
    #[arg(value_enum)]
    pub language: Language,
    /// Folder of the project, which must not exist; its last part is the project's name
    pub name: PathBuf,
}
