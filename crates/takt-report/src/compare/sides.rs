//! Matches the runs of two sides, and lists the differences between their machines.

use std::collections::BTreeSet;
use std::path::Path;

use takt_rundir::Factor;

use super::{FactOfSides, Match, Side, SideRun, values_of};
use crate::Error;
use crate::collect::{Collection, Configuration, Seal};
use crate::words::clean;

/// A side as it is reported.
pub(super) fn side(index: usize, path: &Path, collection: &Collection) -> Side {
    let letter = u8::try_from(index)
        .ok()
        .filter(|i| *i < 26)
        .map_or_else(|| format!("S{}", index + 1), |i| char::from(b'A' + i).to_string());
    let runs = collection.runs.iter().map(|run| SideRun {
        name: run.name.clone(),
        hash: match &run.seal {
            Seal::Whole(hash) => Some(hash.clone()),
            _ => None,
        },
        labels: run.labels(),
    });
    let gaps = collection.gaps.iter().map(|gap| format!("{}: {}", gap.what, gap.why));
    Side { letter, path: clean(&path.display().to_string()), runs: runs.collect(), left_out: gaps.collect() }
}

/// Facts that are not the same on all sides, or not within one.
pub(super) fn machine_differences(collections: &[Collection]) -> Vec<FactOfSides> {
    let first = &collections[0].runs[0].header.machine;
    let mut names: BTreeSet<String> = BTreeSet::new();
    for collection in collections {
        names.extend(collection.differing.iter().map(|fact| fact.name.clone()));
        names.extend(first.differences(&collection.runs[0].header.machine).into_iter().map(|d| d.fact));
    }
    let value = |collection: &Collection, name: &str| -> Vec<String> {
        if let Some(fact) = collection.differing.iter().find(|f| f.name == name) {
            return values_of(fact);
        }
        let facts = serde_json::to_value(&collection.runs[0].header.machine).unwrap_or_default();
        vec![match facts.get(name) {
            None | Some(serde_json::Value::Null) => "unknown".to_owned(),
            Some(serde_json::Value::String(text)) => clean(text),
            Some(other) => clean(&other.to_string()),
        }]
    };
    names
        .into_iter()
        .map(|fact| FactOfSides { values: collections.iter().map(|c| value(c, &fact)).collect(), fact })
        .collect()
}

/// Key of a configuration across sides: the factors that vary within either. A factor that is
/// constant on each side is the difference between the sides.
fn key<'a>(configuration: &'a Configuration, varying: &[&str]) -> Vec<&'a Factor> {
    configuration.factors.iter().filter(|f| varying.contains(&f.name.as_str())).collect()
}

/// Pairs measures and configurations; what has no partner is reported in `unmatched`.
pub(super) fn matches<'a>(
    first: &'a Collection,
    other: &'a Collection,
    letters: &[String; 2],
    measure: Option<&str>,
    unmatched: &mut Vec<String>,
) -> Result<Vec<Match<'a>>, Error> {
    let all = || first.configurations.iter().chain(&other.configurations).flat_map(|c| &c.factors);
    let varying: Vec<&str> = all()
        .filter(|f| {
            !(first.common.iter().any(|c| c.name == f.name) && other.common.iter().any(|c| c.name == f.name))
        })
        .map(|f| f.name.as_str())
        .collect();
    let single = first.configurations.len() == 1 && other.configurations.len() == 1;
    let same = |a: &Configuration, b: &Configuration| {
        single
            || if a.factors.is_empty() && b.factors.is_empty() {
                a.name == b.name
            } else {
                key(a, &varying) == key(b, &varying)
            }
    };
    let mut found = Vec::new();
    for group in first.groups.iter().filter(|g| measure.is_none_or(|name| g.name == name)) {
        let Some(partner) = other.groups.iter().find(|g| g.name == group.name && g.robot == group.robot)
        else {
            unmatched.push(format!("{} {}: only {} measures it", group.robot, group.name, letters[0]));
            continue;
        };
        same_definition(group, partner)?;
        let mut taken = BTreeSet::new();
        for (index, before) in &group.cells {
            let a = &first.configurations[*index];
            let matching = partner.cells.iter().find(|(i, _)| same(a, &other.configurations[*i]));
            let Some((partner_index, after)) = matching else {
                unmatched.push(format!("{}, {}: only in {}", group.name, a.name, letters[0]));
                continue;
            };
            taken.insert(*partner_index);
            let names = [a.name.clone(), other.configurations[*partner_index].name.clone()];
            found.push(Match { group, names, before, after });
        }
        for (index, _) in partner.cells.iter().filter(|(index, _)| !taken.contains(index)) {
            unmatched.push(format!(
                "{}, {}: only in {}",
                group.name, other.configurations[*index].name, letters[1]
            ));
        }
    }
    for group in other.groups.iter().filter(|g| measure.is_none_or(|name| g.name == name)) {
        if !first.groups.iter().any(|g| g.name == group.name && g.robot == group.robot) {
            unmatched.push(format!("{} {}: only {} measures it", group.robot, group.name, letters[1]));
        }
    }
    Ok(found)
}

/// A measure must be the same column on both sides.
fn same_definition(a: &crate::collect::Group, b: &crate::collect::Group) -> Result<(), Error> {
    let of = |group: &crate::collect::Group| {
        group.cells.iter().flat_map(|(_, members)| members).next().map(|(_, m)| crate::collect::definition(m))
    };
    match (of(a), of(b)) {
        (Some(expected), Some(found)) if expected != found => {
            Err(Error::MixedMeasure { measure: a.name.clone(), expected, found })
        }
        _ => Ok(()),
    }
}
