//! The order of blocks: a loop's before those after it, and otherwise a block before its successors.

use super::kernel::Block;

/// The blocks in that order. It is the weak topological order of Bourdoncle (1993): strongly connected parts one after
/// the other, each beginning with the block by which it is entered, and ordered likewise without that block.
pub fn order(blocks: &[Block]) -> Vec<usize> {
    let successors: Vec<Vec<usize>> = blocks.iter().map(|block| block.terminator.successors()).collect();
    let mut placed = Vec::with_capacity(blocks.len());
    place(&(0..blocks.len()).collect::<Vec<_>>(), &successors, &mut placed);
    placed
}

/// Places the blocks of `part`; edges to other blocks do not count.
fn place(part: &[usize], successors: &[Vec<usize>], placed: &mut Vec<usize>) {
    let mut is_open = vec![false; successors.len()];
    for block in part {
        is_open[*block] = true;
    }
    for component in components(part, successors, &is_open) {
        placed.push(component[0]);
        if component.len() > 1 {
            place(&component[1..], successors, placed);
        }
    }
}

/// Strongly connected parts of the open blocks in topological order, each with the block first that is reached first.
fn components(part: &[usize], successors: &[Vec<usize>], is_open: &[bool]) -> Vec<Vec<usize>> {
    let mut search = Search {
        successors,
        is_open,
        number: vec![usize::MAX; successors.len()],
        low: vec![usize::MAX; successors.len()],
        is_on_stack: vec![false; successors.len()],
        stack: vec![],
        next: 0,
        found: vec![],
    };
    for block in part {
        if is_open[*block] && search.number[*block] == usize::MAX {
            search.visit(*block);
        }
    }
    search.found.reverse();
    search.found
}

/// Tarjan's search with a stack of its own.
struct Search<'a> {
    successors: &'a [Vec<usize>],
    is_open: &'a [bool],
    number: Vec<usize>,
    low: Vec<usize>,
    is_on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn enter(&mut self, block: usize) {
        self.number[block] = self.next;
        self.low[block] = self.next;
        self.next += 1;
        self.stack.push(block);
        self.is_on_stack[block] = true;
    }

    fn visit(&mut self, root: usize) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((block, edge)) = path.last_mut() {
            let block = *block;
            if let Some(next) = self.successors[block].get(*edge).copied() {
                *edge += 1;
                if !self.is_open[next] {
                    continue;
                }
                if self.number[next] == usize::MAX {
                    self.enter(next);
                    path.push((next, 0));
                } else if self.is_on_stack[next] {
                    self.low[block] = self.low[block].min(self.number[next]);
                }
                continue;
            }
            path.pop();
            if let Some((above, _)) = path.last() {
                self.low[*above] = self.low[*above].min(self.low[block]);
            }
            if self.low[block] == self.number[block] {
                self.close(block);
            }
        }
    }

    /// Takes the part that was entered by `head` off the stack.
    fn close(&mut self, head: usize) {
        let mut component = Vec::new();
        while let Some(block) = self.stack.pop() {
            self.is_on_stack[block] = false;
            component.push(block);
            if block == head {
                break;
            }
        }
        component.reverse();
        self.found.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{PredicateSource, Terminator};

    fn block(terminator: Terminator) -> Block {
        Block { first: 0, end: 0, terminator, source: 0, order: 0 }
    }

    fn branch(taken: usize, next: usize) -> Block {
        block(Terminator::Branch { predicate: PredicateSource { row: 0, is_negated: false }, taken, next })
    }

    #[test]
    fn blocks_after_a_loop_come_after_it_in_any_layout() {
        // 0 -> 1 (the exit, in front) or 2; 2 and 3 are a loop that leaves by 1.
        let blocks = [branch(1, 2), block(Terminator::Exit { unless: None }), branch(1, 3), block(Terminator::Next(2))];
        assert_eq!(order(&blocks), [0, 2, 3, 1]);
    }

    #[test]
    fn an_inner_loop_comes_before_the_rest_of_the_outer_one() {
        // 0: outer head; 1: inner head, a loop of itself; 2: tail of the outer loop; 3: the exit.
        let blocks = [block(Terminator::Next(1)), branch(1, 2), branch(0, 3), block(Terminator::Exit { unless: None })];
        assert_eq!(order(&blocks), [0, 1, 2, 3]);
        // The two sides of a condition come before the place where they meet.
        let blocks = [
            branch(2, 1),
            block(Terminator::Next(3)),
            block(Terminator::Next(3)),
            block(Terminator::Exit { unless: None }),
        ];
        let order = order(&blocks);
        assert_eq!((order[0], order[3]), (0, 3));
    }
}
