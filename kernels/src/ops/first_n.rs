//! `first_n`: the first n elements of a list. TorchArrow's `firstx`; with a `value`, the result is padded to n columns,
//! as by [`super::pad`]. `last_n`: the last n elements, padded at the start.
//!
//! - Shorter lists are unchanged. A null list stays null. `n` is from 1 to 65,536.
//! - Accepts any lists; with a `value`, lists of numbers.

use crate::error::OpProblem;

/// Checks the number of elements.
pub(crate) fn check(n: u32) -> Result<usize, OpProblem> {
    super::pad::check(n)
}

#[cfg(test)]
mod tests {
    use arrow::{array::AsArray, datatypes::Float32Type};

    use crate::{
        DType, Fill, Op,
        testing::{assert_ints, compile_error, evaluate, int_lists, ints, ragged},
    };

    fn first_n(n: u32, value: Option<f64>) -> Op {
        Op::FirstN { n, value }
    }

    fn last_n(n: u32, value: Option<f64>) -> Op {
        Op::LastN { n, value }
    }

    /// `pandas.Series([[1, 2, 3], [5, 8], []]).map(lambda items: items[-2:])`
    #[test]
    fn keeps_the_last_elements_of_each_list() {
        let lists = || int_lists(&[Some(&[Some(1), Some(2), Some(3)]), Some(&[Some(5), Some(8)]), Some(&[]), None]);
        let fill = || Op::FillNull(Fill::Number(9.0));
        let kept = ragged(DType::Float32, &[fill(), last_n(2, None)], lists()).unwrap();
        assert_eq!(kept.value_offsets(), [0, 2, 4, 4, 4]);
        assert_eq!(kept.values().as_primitive::<Float32Type>().values(), &[2.0, 3.0, 5.0, 8.0]);
        let padded = [Some(0), Some(1), Some(2), Some(3), Some(0), Some(0), Some(5), Some(8)];
        let padded: Vec<Option<i64>> = padded.into_iter().chain([Some(0); 4]).chain([None; 4]).collect();
        assert_ints(&evaluate(&[last_n(4, Some(0.0))], lists()), &padded);
        assert_ints(&evaluate(&[first_n(2, None), fill(), last_n(1, None)], lists()), &[2, 8].map(Some));
        assert_ints(&evaluate(&[last_n(2, None), first_n(1, None)], lists()), &[2, 5].map(Some));
    }

    /// `torcharrow.functional.firstx(ta.column([[1, 2, 3], [5, 8], []]), 2)`
    #[test]
    fn keeps_the_first_elements_of_each_list() {
        let lists = || int_lists(&[Some(&[Some(1), Some(2), Some(3)]), Some(&[Some(5), Some(8)]), Some(&[])]);
        let kept = ragged(DType::Float32, &[first_n(2, None)], lists()).unwrap();
        assert_eq!(kept.value_offsets(), [0, 2, 4, 4]);
        assert_eq!(kept.values().as_primitive::<Float32Type>().values(), &[1.0, 2.0, 5.0, 8.0]);
        assert_ints(&evaluate(&[first_n(1, None)], lists()), &[1, 5].map(Some));
    }

    #[test]
    fn a_value_pads_to_columns() {
        let lists = int_lists(&[Some(&[Some(1)]), Some(&[])]);
        assert_ints(&evaluate(&[first_n(2, Some(9.0))], lists), &[1, 9, 9, 9].map(Some));
    }

    #[test]
    fn limits_the_runs_of_ngram() {
        let lists = || int_lists(&[Some(&[Some(1), Some(2), Some(3)]), Some(&[Some(4)])]);
        let ngram = || Op::Ngram { n: 2, buckets: 1 << 40, seed: 0 };
        let all = evaluate(&[ngram()], lists());
        assert_eq!(all.len(), 2);
        assert_eq!(evaluate(&[ngram(), first_n(1, None)], lists()).as_ref(), all.slice(0, 1).as_ref());
    }

    #[test]
    fn rejects_invalid_parameters_and_columns() {
        let lists = || int_lists(&[None]);
        assert!(compile_error(&[first_n(0, None)], lists()).ends_with("n must be from 1 to 65536, not 0"));
        assert!(
            compile_error(&[first_n(1, None)], ints(&[None]))
                .ends_with("it takes lists, but its input is whole numbers")
        );
    }
}
