//! Chains given up early, compared with the search that examines everything.

#![allow(clippy::unwrap_used)]

use std::cmp::Ordering;

use takt_rt::random::SplitMix64;

use super::*;
use crate::simulate::{Features, random_with};

/// Chains from every callback as far as it leads, in random order, with goals from hopeless to
/// easy.
fn goals(model: &Model, random: &mut SplitMix64) -> Goals {
    let (mut text, mut names) = (String::new(), Vec::new());
    for (number, first) in model.callbacks.iter().enumerate() {
        let mut last = first;
        while let Some(next) = last.publishes.iter().flat_map(|t| &model.topics[t.0].subscribers).last() {
            last = &model.callbacks[next.0];
        }
        let (start, end, goal) = (&first.name, &last.name, random.within(5, 300));
        text += &format!(
            "[[chain]]\nname = \"c{number}\"\nstart = \"{start}\"\nend = \"{end}\"\ngoal_ms = {goal}\n"
        );
        names
            .insert(usize::try_from(random.within(0, names.len() as u64)).unwrap(), format!("\"c{number}\""));
    }
    Goals::parse(&format!("degradation_order = [{}]\n{text}", names.join(",")), "random").unwrap()
}

#[test]
fn a_search_that_is_given_up_early_comes_to_the_same_plan() {
    let (mut shared_cores, mut own, mut given_up, mut others, mut worse, mut impossible) = (0, 0, 0, 0, 0, 0);
    let (mut hasty, mut sums_ns) = ([0; 3], [0; 2]);
    for seed in 0..400 {
        let mut system = random_with(seed, Features { threads: seed % 3 == 0, ..Features::ALL });
        let mut random = SplitMix64::new(seed ^ 0x51a1);
        let lighter = random.within(1, 8);
        system.callbacks.iter_mut().flat_map(|c| &mut c.costs_ns).for_each(|ns| *ns = 1 + *ns / lighter);
        let model = system.exact_model();
        let goals = goals(&model, &mut random);
        let mut platform = Platform::new(vec![1, 2], 0, 0.95);
        platform.enforcement_ns = [0, 1_000_000, 4_000_000][seed as usize / 3 % 3];
        let manager = Manager::new(goals, platform);
        let workload = Workload::new(&model, &manager.reading());
        let mut ways = chains::Remembered::default();
        let ends = manager.goals.chains.iter().map(|chain| (chain.start.as_str(), chain.end.as_str()));
        let ways: Vec<_> = ways.of(&model, ends).iter().map(|ways| ways.as_ref().ok().cloned()).collect();
        let requests: Vec<Option<Request<'_>>> = (manager.goals.chains.iter().zip(&ways).enumerate())
            .map(|(number, (chain, paths))| {
                let paths = paths.as_ref().filter(|p| not_analysable(&model, &workload, p).is_none())?;
                Some(Request { name: &chain.name, goal_ns: manager.goal_limit_ns(number), paths })
            })
            .collect();
        let order = &manager.goals.degradation_order;

        // All chains at all periods that are worth it, and then whether shared cores are better.
        let mut plain = manager.best_attempt(&workload, &requests, &mut Alone);
        let kept = manager.kept(&plain);
        let keeps_all = requests.iter().zip(&kept).all(|(request, kept)| request.is_none() || *kept);
        if !keeps_all
            && let Some(shared) = manager.shared_attempt(&workload, &requests, None, &kept)
            && degrade::better(&shared.kept(), &kept, order).is_gt()
        {
            plain = shared;
        }
        // A goal reported as impossible is not met.
        let each = requests.iter().flatten().map(|request| vec![request]);
        for asked in each.chain([requests.iter().flatten().collect()]) {
            let mut analysis = manager.analysis(&workload, 10_000_000);
            let mut search = Search::new(&mut analysis, manager.limits(10_000_000));
            if search.cannot_keep(&asked) {
                impossible += usize::from(!asked.iter().any(|request| search.is_hopeless(request)));
                assert!(asked.iter().any(|request| search.guarantee(request).is_err()), "seed {seed}");
            }
        }
        // Budgets given at once meet about as many goals as budgets given step by step, and are not
        // larger.
        let keep = |hasty: bool| {
            let mut analysis = manager.analysis(&workload, 5_000_000);
            let mut search = Search::new(&mut analysis, manager.limits(5_000_000)).hastily(hasty);
            let (fates, _) = degrade::decide(&mut search, &requests, order, None, &mut Alone);
            let kept: Vec<bool> = fates.iter().map(|fate| matches!(fate, Some(Ok(_)))).collect();
            (kept, search.budgets_ns.iter().sum::<u64>())
        };
        let (by_step, at_once) = (keep(false), keep(true));
        hasty[match degrade::better(&at_once.0, &by_step.0, order) {
            Ordering::Less => 0,
            Ordering::Equal => 1,
            Ordering::Greater => 2,
        }] += 1;
        if at_once.0 == by_step.0 {
            (sums_ns[0], sums_ns[1]) = (sums_ns[0] + by_step.1, sums_ns[1] + at_once.1);
        }
        let chosen = manager.choose(&workload, &requests, None, &mut 0, true);
        let mut rival =
            Shared { manager: &manager, workload: &workload, requests: &requests, held: None, found: None };
        given_up += usize::from(!manager.best_attempt(&workload, &requests, &mut rival).complete);
        shared_cores += usize::from(chosen.shared.is_some());
        own += usize::from(chosen.shared.is_none() && chosen.kept().contains(&true));
        let same = (chosen.period_ns, &chosen.budgets_ns, &chosen.bounds, &chosen.decisions)
            == (plain.period_ns, &plain.budgets_ns, &plain.bounds, &plain.decisions);
        if !same {
            // Other periods are tried where that search had ended, and what was refused may have
            // been kept in the end by what others were given.
            others += 1;
            let all_kept = degrade::better(&manager.kept(&chosen), &manager.kept(&plain), order);
            worse += usize::from(all_kept.is_lt());
        }
    }
    println!(
        "{shared_cores} with shared cores, {own} without, {given_up} given up, {others} others, {worse} worse, {impossible} \
         impossible though not hopeless"
    );
    println!("at once: {hasty:?} keep less, the same, more; budgets of the same {sums_ns:?}");
    assert!(impossible > 20, "{impossible}");
    assert!(hasty[0] <= 8 && sums_ns[1] <= sums_ns[0] / 100 * 102, "{hasty:?}, {sums_ns:?}");
    assert!(shared_cores > 20 && own > 50 && given_up > 20, "{shared_cores}, {own}, {given_up}");
    assert!(others <= 4 && worse <= 1, "{others} others, {worse} worse");
}
