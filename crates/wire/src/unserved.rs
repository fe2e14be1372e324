//! The features of Azure Machine Learning that this version does not support, with an alternative for each. Clients
//! that request one, files that describe one and commands that name one all get the same message.

/// A feature that is not supported.
#[derive(Debug, PartialEq, Eq)]
pub struct Unserved {
    /// The subject of the message, in the plural.
    pub name: &'static str,
    /// The words after `az ml`, if there are any.
    pub nouns: &'static [&'static str],
    /// Words in paths in lower case, and types of jobs without underscores.
    pub words: &'static [&'static str],
    pub instead: &'static str,
}

const fn thing(
    name: &'static str,
    nouns: &'static [&'static str],
    words: &'static [&'static str],
    instead: &'static str,
) -> Unserved {
    Unserved { name, nouns, words, instead }
}

const SERVE_IN_A_JOB: &str =
    "serve the model from a job that opens a port (docs/reference/services.md)";
const FEATURES_AS_DATA: &str = "keep the features as data assets, with `muster data create`";
const NETWORK_OF_JOBS: &str =
    "what jobs may reach is a setting of the server, egress (docs/reference/configuration.md)";
const JOBS_BY_HAND: &str = "run it as a command job";

/// The first feature with a matching word applies.
const ALL: &[Unserved] = &[
    thing(
        "schedules",
        &["schedule"],
        &["schedules"],
        "submit the job from cron or a systemd timer, with `muster job create`",
    ),
    thing(
        "online endpoints and deployments",
        &["online-endpoint", "online-deployment"],
        &["onlineendpoints", "onlinedeployments"],
        SERVE_IN_A_JOB,
    ),
    thing(
        "batch endpoints and deployments",
        &["batch-endpoint", "batch-deployment"],
        &["batchendpoints", "batchdeployments"],
        "submit a command job that reads the data and writes the results",
    ),
    thing(
        "serverless endpoints",
        &["serverless-endpoint"],
        &["serverlessendpoints"],
        SERVE_IN_A_JOB,
    ),
    thing(
        "marketplace subscriptions",
        &["marketplace-subscription"],
        &["marketplacesubscriptions"],
        "register the model's files, with `muster model create`",
    ),
    thing(
        "registries",
        &["registry"],
        &["registries", "registrymanagement"],
        "keep assets in a workspace, with `muster environment create`, `muster model create` and so on",
    ),
    thing(
        "feature stores",
        &["feature-store", "feature-store-entity", "feature-set"],
        &["featurestores", "featurestoreentities", "featuresets"],
        FEATURES_AS_DATA,
    ),
    thing(
        "connections",
        &["connection"],
        &["connections"],
        "pass addresses and credentials to a job in environment variables, with `muster job create --env`",
    ),
    thing(
        "AutoML jobs",
        &[],
        &["automl"],
        "submit a command job that trains the models which you want to compare",
    ),
    thing(
        "pipeline jobs",
        &[],
        &["pipeline", "pipelines"],
        "submit its steps as command jobs, each after the previous one has completed",
    ),
    thing(
        "sweep jobs",
        &[],
        &["sweep", "hyperdrive"],
        "submit a command job for each set of values, such as `muster job create --env RATE=0.1`",
    ),
    thing("Spark jobs", &[], &["spark"], "submit a command job that starts Spark itself"),
    thing(
        "parallel jobs",
        &[],
        &["parallel"],
        "submit a command job with `--instance-count`, and let each node take its part",
    ),
    thing(
        "data transfer jobs",
        &[],
        &["datatransfer"],
        "submit a command job that copies the data",
    ),
    thing("fine-tuning jobs", &[], &["finetuning"], "submit a command job that trains the model"),
    thing(
        "distillation jobs",
        &[],
        &["distillation"],
        "submit a command job that trains the model",
    ),
    thing("labeling jobs", &[], &["labeling", "labelingjobs"], "label the data elsewhere"),
    thing(
        "outbound rules and managed networks",
        &[],
        &["outboundrules", "managednetworks", "provisionmanagednetwork"],
        NETWORK_OF_JOBS,
    ),
    thing(
        "private endpoints",
        &[],
        &["privateendpointconnections", "privatelinkresources"],
        "configure the address on which the server listens (docs/reference/configuration.md)",
    ),
    thing(
        "capability hosts",
        &["capability-host"],
        &["capabilityhosts"],
        "create a cluster, with `muster compute create`",
    ),
    thing(
        "virtual clusters",
        &[],
        &["virtualclusters", "instancetypeseries"],
        "create a cluster, with `muster compute create`",
    ),
    thing(
        "indexes",
        &["index"],
        &["indexes"],
        "keep the index as a data asset, with `muster data create`",
    ),
    thing("prompt flows", &[], &["flows", "promptflows"], JOBS_BY_HAND),
    thing("evaluators", &[], &["evaluators"], JOBS_BY_HAND),
    thing(
        "packages of models and environments",
        &[],
        &["package", "packages"],
        "register the model and the environment, and name both in a command job",
    ),
    thing(
        "deployment templates",
        &["deployment-template"],
        &["deploymenttemplates"],
        SERVE_IN_A_JOB,
    ),
    thing(
        "notebook servers of a workspace",
        &[],
        &["preparenotebook", "listnotebookkeys", "listnotebookaccesstoken"],
        "start a notebook in a job (docs/reference/services.md)",
    ),
    thing(
        "linked services",
        &[],
        &["linkedservices", "linkedworkspaces"],
        "create a datastore, with `muster datastore create`",
    ),
];

impl Unserved {
    /// The feature that an unknown path asks for. The workspace's name and everything before it are ignored.
    pub fn of_path(path: &str) -> Option<&'static Unserved> {
        let path = path.to_ascii_lowercase();
        let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
        let workspace = words.iter().position(|word| *word == "workspaces");
        let after = workspace.map_or(0, |at| (at + 2).min(words.len()));
        let known = |word: &&str| of_word(word);
        words[after..].iter().find_map(known).or_else(|| words[..after].first().and_then(known))
    }

    /// The feature for a type of job, in any of the spellings of Azure's clients.
    pub fn of_job_type(kind: &str) -> Option<&'static Unserved> {
        of_word(&kind.to_ascii_lowercase().replace(['_', '-'], ""))
    }

    /// The feature for the words after `az ml`.
    pub fn of_noun(noun: &str) -> Option<&'static Unserved> {
        ALL.iter().find(|one| one.nouns.contains(&noun))
    }

    pub fn sentence(&self) -> String {
        format!("{} are not supported in this version", self.name)
    }
}

/// The message with the alternative.
impl std::fmt::Display for Unserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; instead, {}", self.sentence(), self.instead)
    }
}

fn of_word(word: &str) -> Option<&'static Unserved> {
    ALL.iter().find(|one| one.words.contains(&word))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const WORKSPACE: &str = "/subscriptions/s/resourceGroups/schedules/providers/\
                             Microsoft.MachineLearningServices/workspaces/schedules";

    #[test]
    fn a_path_is_known_by_the_word_after_its_workspace() {
        for (path, wanted) in [
            (format!("{WORKSPACE}/schedules/nightly"), Some("schedules")),
            (
                format!("{WORKSPACE}/onlineEndpoints/e/deployments/d"),
                Some("online endpoints and deployments"),
            ),
            (format!("{WORKSPACE}/batchEndpoints"), Some("batch endpoints and deployments")),
            (format!("{WORKSPACE}/connections/c/listsecrets"), Some("connections")),
            (format!("{WORKSPACE}/computes/c/unknown"), None),
            (WORKSPACE.to_owned(), None),
            ("/registrymanagement/v1.0/registries/r/discovery".to_owned(), Some("registries")),
            (
                "/subscriptions/s/resourceGroups/g/providers/\
                 Microsoft.MachineLearningServices/registries/r"
                    .to_owned(),
                Some("registries"),
            ),
            ("/nope".to_owned(), None),
        ] {
            assert_eq!(Unserved::of_path(&path).map(|one| one.name), wanted, "{path}");
        }
    }

    #[test]
    fn each_word_means_one_thing() {
        let mut words = BTreeSet::new();
        for one in ALL {
            for word in one.words.iter().chain(one.nouns) {
                assert!(words.insert(*word), "{word} twice");
                assert_eq!(*word, word.to_ascii_lowercase());
            }
            assert!(!one.to_string().contains(".;"), "{one}");
        }
        for kind in ["AutoML", "automl", "Pipeline", "Sweep", "data_transfer", "FineTuning"] {
            assert!(Unserved::of_job_type(kind).is_some(), "{kind}");
        }
        assert_eq!(Unserved::of_job_type("Command"), None);
        assert_eq!(
            Unserved::of_noun("schedule").map(ToString::to_string).as_deref(),
            Some(
                "schedules are not supported in this version; instead, submit the job from cron or a systemd \
                 timer, with `muster job create`"
            )
        );
    }
}
