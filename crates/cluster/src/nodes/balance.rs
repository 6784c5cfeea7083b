//! Which cell a node gives to another one, so that cells are spread evenly.
//!
//! Cells stay where they are while no two living nodes differ by more than one cell. Otherwise the node with
//! the most gives one to the node with the fewest, and all nodes agree which these are. So one cell moves at
//! a time, and no more than needed. The first cell does not move: it serves everything but virtual hosts.
//! Nodes without an address for others own no cell but the first, and count for nothing here.

use super::{Node, PEER, View};

/// Returns a cell that this node owns and is to give away, and the number of the node that is to have it.
/// `None` while a cell has no owner that lives.
pub fn surplus(view: &View) -> Option<(u32, u32)> {
    let living = || view.nodes.iter().filter(|node| node.is_alive);
    let reached = || living().filter(|node| node.facts.address(PEER).is_some());
    let is_of = |node: &Node, cell: usize| {
        let owner = view.cells.get(cell).and_then(|owner| owner.node);
        owner == Some(node.facts.incarnation)
    };
    let cells = 0..view.cells.len();
    if !cells.clone().all(|cell| living().any(|node| is_of(node, cell))) {
        return None;
    }
    let load = |node: &Node| cells.clone().filter(|cell| is_of(node, *cell)).count();
    // Of nodes with the same number of cells, the first one.
    let most = living().max_by_key(|node| (load(node), std::cmp::Reverse(node.number)))?;
    let fewest = reached().min_by_key(|node| (load(node), node.number))?;
    if most.number != view.own || load(most) < load(fewest) + 2 {
        return None;
    }
    let cell = cells.rev().find(|cell| *cell > 0 && is_of(most, *cell))?;
    Some((u32::try_from(cell).ok()?, fewest.number))
}

#[cfg(test)]
mod tests {
    use super::super::{Key, NodeFacts};
    use super::*;
    use crate::database::Owner;

    /// A view of nodes 1, 2, … as the first of them; `cells` are the numbers of owners, 0 for none.
    fn view(nodes: u8, cells: &[u8]) -> View {
        let node = |number: u8| Node {
            number: number.into(),
            facts: NodeFacts {
                name: number.to_string(),
                incarnation: [number; 16],
                key: Key::random(),
                version: String::new(),
                addresses: vec![(PEER.to_owned(), "127.0.0.1:1".to_owned())],
            },
            is_alive: true,
            silent_ms: 0,
        };
        let owner = |number: &u8| Owner {
            node: (*number > 0).then_some([*number; 16]),
            ..Owner::default()
        };
        View {
            own: 1,
            nodes: (1..=nodes).map(node).collect(),
            cells: cells.iter().map(owner).collect(),
            ..View::default()
        }
    }

    /// Moves cells until none is to be moved. Returns the owners, and the number of moves.
    fn settled(mut view: View) -> (Vec<u8>, usize) {
        for moves in 0.. {
            let numbers: Vec<u32> = view.nodes.iter().map(|node| node.number).collect();
            let mut orders = numbers.into_iter().filter_map(|own| {
                view.own = own;
                surplus(&view).map(|(cell, to)| (cell as usize, to))
            });
            let order = orders.next();
            assert!(orders.next().is_none(), "two nodes give cells away at a time");
            let Some((cell, to)) = order else {
                let owner = |owner: &Owner| owner.node.map_or(0, |node| node[0]);
                return (view.cells.iter().map(owner).collect(), moves);
            };
            view.cells[cell].node = Some([u8::try_from(to).unwrap(); 16]);
            assert!(moves < 100, "cells move for ever");
        }
        unreachable!()
    }

    #[test]
    fn cells_of_the_first_node_are_spread_over_those_that_come() {
        assert_eq!(settled(view(1, &[1, 1, 1, 1])), (vec![1, 1, 1, 1], 0));
        assert_eq!(settled(view(2, &[1, 1, 1, 1])), (vec![1, 1, 2, 2], 2));
        assert_eq!(settled(view(3, &[1, 1, 2, 2])), (vec![1, 3, 2, 2], 1));
        assert_eq!(
            settled(view(3, &[1, 1, 2, 3])),
            (vec![1, 1, 2, 3], 0),
            "none has two more"
        );
        assert_eq!(settled(view(3, &[1, 1, 1, 1, 2, 2])), (vec![1, 1, 3, 3, 2, 2], 2));
        assert_eq!(settled(view(4, &[1, 1, 1, 1])), (vec![1, 4, 3, 2], 3));
    }

    #[test]
    fn nodes_that_others_cannot_reach_get_no_cells() {
        let mut view = view(3, &[1, 1, 1, 1]);
        view.nodes[1].facts.addresses.clear();
        assert_eq!(settled(view), (vec![1, 1, 3, 3], 2));
    }

    #[test]
    fn the_first_cell_stays_where_it_is() {
        assert_eq!(settled(view(2, &[1])), (vec![1], 0));
        assert_eq!(settled(view(2, &[2, 2, 2])), (vec![2, 2, 1], 1));
    }

    #[test]
    fn no_cell_moves_while_one_has_no_owner() {
        assert_eq!(surplus(&view(2, &[1, 1, 1, 0])), None);
        let mut other = view(3, &[1, 1, 1, 3]);
        other.nodes[2].is_alive = false;
        assert_eq!(surplus(&other), None, "its owner is dead");
        assert_eq!(surplus(&View::default()), None);
    }
}
