//! Conditions of runs as features of nodes.
//!
//! A feature is a word that an administrator gives to nodes (`Feature=` in slurm.conf, or what a
//! plugin for changeable features offers, and then Slurm reboots the node into it). A factor
//! `kernel` or `label.NAME` asks for the feature that its value names; `boot.PARAMETER` for
//! `PARAMETER=VALUE`, as the kernel's command line has it.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::Node;
use crate::error::SlurmError;

/// Prefix of the factors of boot parameters.
const BOOT: &str = "boot.";

/// The feature that each label asks for, with the label.
pub(crate) fn features(labels: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, SlurmError> {
    let feature = |(name, value): (&String, &String)| {
        let feature = match name.strip_prefix(BOOT) {
            Some(parameter) => format!("{parameter}={value}"),
            None => value.clone(),
        };
        // The others have a meaning in the language of --constraint.
        match feature.chars().find(|c| !(c.is_ascii_alphanumeric() || "_.:=/-".contains(*c))) {
            Some(character) => {
                Err(SlurmError::NoFeature { factor: name.clone(), value: value.clone(), character })
            }
            None => Ok((name.clone(), feature)),
        }
    };
    labels.iter().map(feature).collect()
}

/// The words of a constraint that name features: all but operators and counts (`rack1*2&(rt|big)`).
fn words(constraint: &str) -> Vec<&str> {
    let parts = constraint.split(['&', '|', ',', '(', ')', '[', ']']).map(str::trim);
    parts.map(|part| part.split('*').next().unwrap_or(part)).filter(|word| !word.is_empty()).collect()
}

/// The constraint of a block: what the user asks for anyway, and its own features.
pub(crate) fn constraint(asked: Option<&str>, features: &[(String, String)]) -> Option<String> {
    let own = features.iter().map(|(_, feature)| feature.clone());
    // Parentheses keep an "or" of the user's apart; a single word needs none, which old versions
    // cannot read.
    let asked =
        asked.map(|asked| if words(asked) == [asked] { asked.to_owned() } else { format!("({asked})") });
    let all: Vec<String> = asked.into_iter().chain(own).collect();
    (!all.is_empty()).then(|| all.join("&"))
}

/// The nodes with their features.
pub(crate) fn there(nodes: &[Node]) -> String {
    let node = |node: &Node| match node.features.is_empty() {
        true => format!("{} (none)", node.name),
        false => format!("{} ({})", node.name, node.features.join(", ")),
    };
    nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

/// Refuses features that no node has, and those that no node has together.
pub(crate) fn check(
    nodes: &[Node],
    partition: &str,
    asked: Option<&str>,
    own: &[(String, String)],
) -> Result<(), SlurmError> {
    let known: BTreeSet<&str> = nodes.iter().flat_map(|n| &n.features).map(String::as_str).collect();
    let by_user = asked.map(words).unwrap_or_default().into_iter();
    let by_user = by_user.map(|word| (format!("--constraint {}", asked.unwrap_or_default()), word));
    let by_factor = own.iter().map(|(label, feature)| (format!("factor {label}"), feature.as_str()));
    for (asked_by, feature) in by_user.chain(by_factor) {
        if !known.contains(feature) {
            return Err(SlurmError::Feature {
                asked_by,
                feature: feature.to_owned(),
                partition: partition.to_owned(),
                there: there(nodes),
            });
        }
    }
    // Of the user's constraint what is an "and" of features; the rest of its language is sbatch's.
    let plain = asked.filter(|asked| !asked.contains(['|', ',', '(', '[', '*']));
    let by_user = plain.map(words).unwrap_or_default();
    let all: Vec<&str> = by_user.iter().copied().chain(own.iter().map(|(_, f)| f.as_str())).collect();
    let has_all = |node: &Node| all.iter().all(|feature| node.features.iter().any(|f| f == feature));
    if !nodes.iter().any(has_all) {
        let option = plain.map(|asked| format!("--constraint {asked}"));
        let labels: Vec<&str> = own.iter().map(|(label, _)| label.as_str()).collect();
        let factors = (!labels.is_empty()).then(|| format!("factors {}", labels.join(", ")));
        return Err(SlurmError::Together {
            asked_by: option.into_iter().chain(factors).collect::<Vec<_>>().join(" and "),
            features: all.into_iter().map(str::to_owned).collect(),
            partition: partition.to_owned(),
            there: there(nodes),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, features: &[&str]) -> Node {
        Node {
            name: name.to_owned(),
            state: "idle".to_owned(),
            features: features.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn conditions_become_features_and_a_constraint() {
        let own = features(&labels(&[("kernel", "rt"), ("boot.isolcpus", "2-3"), ("board", "nuc")])).unwrap();
        assert_eq!(constraint(None, &own).unwrap(), "nuc&isolcpus=2-3&rt");
        assert_eq!(constraint(Some("big"), &own[..1]).unwrap(), "big&nuc");
        assert_eq!(constraint(Some("big|small"), &own[..1]).unwrap(), "(big|small)&nuc");
        assert_eq!(constraint(None, &[]), None);
        let refused = features(&labels(&[("kernel", "rt&big")])).unwrap_err().to_string();
        assert!(refused.contains("'&'") && refused.contains("factor kernel"), "{refused}");
    }

    #[test]
    fn what_no_node_has_is_named_with_what_exists() {
        let nodes = [node("n0", &["rt", "big"]), node("n1", &["generic"]), node("n2", &[])];
        let own = |pairs| features(&labels(pairs)).unwrap();
        check(&nodes, "lab", Some("big|generic"), &own(&[("kernel", "rt")])).unwrap();
        check(&nodes, "lab", Some("[rt*2&big]"), &[]).unwrap();
        for (asked, pairs, parts) in [
            (
                None,
                &[("kernel", "rt6")][..],
                ["factor kernel", "\"rt6\"", "n0 (rt, big), n1 (generic), n2 (none)"],
            ),
            (Some("rt|fast"), &[], ["--constraint rt|fast", "\"fast\"", "partition lab"]),
            (
                None,
                &[("kernel", "generic"), ("board", "big")],
                ["factors board, kernel", "all of big, generic", "n1 (generic)"],
            ),
        ] {
            let message = check(&nodes, "lab", asked, &own(pairs)).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
