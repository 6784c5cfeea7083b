//! The experiments that come with the program: the files of `experiments/`, built in.

use super::read::{ExperimentError, Source};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Name and text, in the order in which they are listed.
        pub const EXPERIMENTS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../experiments/", $name, ".toml")))),*
        ];
    };
}

built_in![
    "peak",
    "latency",
    "clients",
    "client-latency",
    "exactly-once",
    "durability",
    "queue-auto-ack",
    "queue-confirms",
    "queue-latency",
    "queue-fan-out",
    "queue-backlog",
    "queue-connections",
    "prefetch",
    "idle-connections",
    "cold-start",
    "user-steps",
    "backlog-flush",
    "bulk-handling",
    "topics-doubled",
    "live-topics-doubled",
    "live-topics-stored",
    "songs",
    "songs-unfiltered",
    "songs-before-a-queue",
    "live-fan-out",
    "live-idle-connections",
    "adaptive-traffic",
    "adaptive-live",
    "time-shares",
    "mlmq-one",
    "mlmq-mix",
    "mlmq-select",
    "requests-split",
    "message-size",
    "rate-and-size",
    "bindings-doubled",
    "overload",
    "overload-queues",
    "overload-live",
    "overload-http",
    "faults",
    "history-cost",
    "stability",
    "client-ramp",
    "client-ramp-slow",
    "factors",
    "factors-levels",
    "batch-and-partitions",
    "linger-and-batch",
    "compression",
    "flush-and-batch",
    "fan-out-queues",
    "lazy-queues",
    "queue-length",
    "write-by-batch",
    "read-by-batch",
    "write-and-read-by-batch",
    "flush-interval",
    "kill-and-resume",
    "sessions",
    "sessions-rate",
    "balance",
];

/// The experiment of that name.
pub fn find(name: &str) -> Option<Source> {
    let (name, text) = EXPERIMENTS.iter().find(|(known, _)| *known == name)?;
    Some(Source::new(
        format!("experiments/{name}.toml"),
        (*text).to_owned(),
    ))
}

/// All of them, read.
pub fn all() -> Result<Vec<(&'static str, super::Experiment)>, ExperimentError> {
    let read = |(name, _): &(&'static str, _)| match find(name) {
        Some(source) => source.experiment().map(|experiment| Some((*name, experiment))),
        None => Ok(None),
    };
    EXPERIMENTS
        .iter()
        .filter_map(|row| read(row).transpose())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_can_be_read_and_says_how_it_is_drawn() {
        for (name, _) in EXPERIMENTS {
            let source = find(name).unwrap();
            let experiment = source.experiment().unwrap_or_else(|error| panic!("{error}"));
            assert!(
                experiment.question.ends_with('?'),
                "{name}: {}",
                experiment.question
            );
            assert!(!experiment.figures.is_empty(), "{name} is drawn somehow");
        }
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                name.strip_suffix(".toml").map(str::to_owned)
            })
            .collect();
        files.sort();
        let mut built_in: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in);
    }
}
