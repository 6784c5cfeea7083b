//! Reduction of a failing plan: removes steps as long as it still fails.

/// Returns the smallest failing list of steps that it finds among `steps`. Calls `fails` at most `tries`
/// times.
pub fn shrink(steps: Vec<usize>, mut tries: usize, mut fails: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut kept = steps;
    let mut part = kept.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut is_smaller = false;
        while at < kept.len() {
            if tries == 0 {
                return kept;
            }
            tries -= 1;
            let end = (at + part).min(kept.len());
            let mut without = kept.clone();
            without.drain(at..end);
            if fails(&without) {
                kept = without;
                is_smaller = true;
            } else {
                at = end;
            }
        }
        if part == 1 && !is_smaller {
            break;
        }
        part = if part == 1 { 1 } else { part.div_ceil(2) };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays_and_nothing_else() {
        let needed = [3, 17, 64];
        let fails = |kept: &[usize]| needed.iter().all(|step| kept.contains(step));
        assert_eq!(shrink((0..100).collect(), 1000, fails), needed);
        assert_eq!(shrink(vec![1], 10, |_| true), Vec::<usize>::new());
    }
}
