//! What a set of latencies says: summaries, histograms, verdicts.
