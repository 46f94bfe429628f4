//! Units of equal shape and cost: [`UnitClass`], [`UnitClasses`], [`PerClass`].

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::unit::Unit;

/// Units of one class have equal parameters, bytes and costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitClass {
    /// See [`Unit::Table`].
    Table,
    /// See [`Unit::Embedding`].
    Embedding,
    /// Layers of one shape; classes are counted from 0 in the order of their first layers.
    Layer(u32),
    /// See [`Unit::Head`].
    Head,
    /// Adapters of the layers of this class.
    Adapters(u32),
    /// Experts of the layers of this class.
    Experts(u32),
}

/// The class of each unit of a model. By default, all layers are of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitClasses {
    /// The class of each layer; empty where all layers are of one class.
    of_layer: Arc<[u32]>,
    /// The first layer of each class; empty where all layers are of one class.
    first: Arc<[u32]>,
}

impl UnitClasses {
    /// Classes of a model whose layers have these `shapes`: layers of equal shape are of one class.
    pub fn of_shapes<S: Ord>(shapes: impl IntoIterator<Item = S>) -> UnitClasses {
        let (mut known, mut first) = (BTreeMap::new(), vec![]);
        let of_layer: Vec<u32> = shapes
            .into_iter()
            .zip(0..)
            .map(|(shape, layer)| {
                *known.entry(shape).or_insert_with(|| {
                    first.push(layer);
                    first.len() as u32 - 1
                })
            })
            .collect();
        if first.len() < 2 {
            return UnitClasses::default();
        }
        UnitClasses { of_layer: of_layer.into(), first: first.into() }
    }

    /// The class of `unit`; the first class of layers for a layer that the model does not have.
    pub fn class_of(&self, unit: Unit) -> UnitClass {
        match unit {
            Unit::Table => UnitClass::Table,
            Unit::Embedding => UnitClass::Embedding,
            Unit::Layer(layer) => UnitClass::Layer(self.class_of_layer(layer)),
            Unit::Head => UnitClass::Head,
            Unit::Adapters(layer) => UnitClass::Adapters(self.class_of_layer(layer)),
            Unit::Experts(layer) => UnitClass::Experts(self.class_of_layer(layer)),
        }
    }

    fn class_of_layer(&self, layer: u32) -> u32 {
        self.of_layer.get(layer as usize).copied().unwrap_or(0)
    }

    fn first_layer(&self, class: u32) -> u32 {
        self.first.get(class as usize).copied().unwrap_or(0)
    }

    /// Classes of layers.
    fn of_layers(&self) -> u32 {
        self.first.len().max(1) as u32
    }

    /// The first unit of `class`; layer 0 for a class that the model does not have.
    pub fn first(&self, class: UnitClass) -> Unit {
        match class {
            UnitClass::Table => Unit::Table,
            UnitClass::Embedding => Unit::Embedding,
            UnitClass::Layer(class) => Unit::Layer(self.first_layer(class)),
            UnitClass::Head => Unit::Head,
            UnitClass::Adapters(class) => Unit::Adapters(self.first_layer(class)),
            UnitClass::Experts(class) => Unit::Experts(self.first_layer(class)),
        }
    }

    /// All classes: table, embedding, head, then those of layers, then those of their adapters, then of their experts.
    pub fn all(&self) -> impl Iterator<Item = UnitClass> + use<> {
        let of_layers = 0..self.of_layers();
        let own = [UnitClass::Table, UnitClass::Embedding, UnitClass::Head].into_iter();
        let layers = of_layers.clone().map(UnitClass::Layer);
        own.chain(layers).chain(of_layers.clone().map(UnitClass::Adapters)).chain(of_layers.map(UnitClass::Experts))
    }
}

/// One value for each class of units of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerClass<T> {
    classes: UnitClasses,
    /// In the order of [`UnitClasses::all`].
    values: Vec<T>,
}

impl<T> PerClass<T> {
    /// The value that `of` makes for each class.
    pub fn new(classes: &UnitClasses, of: impl FnMut(UnitClass) -> T) -> PerClass<T> {
        PerClass { classes: classes.clone(), values: classes.all().map(of).collect() }
    }

    /// Returns the same as [`PerClass::new`], or the first error of `of`.
    ///
    /// # Errors
    /// The first error of `of`.
    pub fn try_new<E>(classes: &UnitClasses, of: impl FnMut(UnitClass) -> Result<T, E>) -> Result<PerClass<T>, E> {
        Ok(PerClass { classes: classes.clone(), values: classes.all().map(of).collect::<Result<Vec<T>, E>>()? })
    }

    /// The classes.
    pub fn classes(&self) -> &UnitClasses {
        &self.classes
    }

    /// The value of the class of `unit`.
    pub fn of(&self, unit: Unit) -> &T {
        &self[self.classes.class_of(unit)]
    }

    /// Each class with its value, in the order of [`UnitClasses::all`].
    pub fn iter(&self) -> impl Iterator<Item = (UnitClass, &T)> {
        self.classes.all().zip(&self.values)
    }

    /// The values of the classes of layers.
    pub fn of_layers(&self) -> &[T] {
        &self.values[LAYERS..LAYERS + self.classes.of_layers() as usize]
    }

    /// The values that `of` makes from the value of each class.
    pub fn map<U>(&self, mut of: impl FnMut(UnitClass, &T) -> U) -> PerClass<U> {
        let values = self.iter().map(|(class, value)| of(class, value)).collect();
        PerClass { classes: self.classes.clone(), values }
    }
}

/// Where the values of layers begin.
const LAYERS: usize = 3;

fn index(classes: &UnitClasses, class: UnitClass) -> usize {
    match class {
        UnitClass::Table => 0,
        UnitClass::Embedding => 1,
        UnitClass::Head => 2,
        UnitClass::Layer(class) => LAYERS + class as usize,
        UnitClass::Adapters(class) => LAYERS + (classes.of_layers() + class) as usize,
        UnitClass::Experts(class) => LAYERS + (2 * classes.of_layers() + class) as usize,
    }
}

impl<T> Index<UnitClass> for PerClass<T> {
    type Output = T;

    fn index(&self, class: UnitClass) -> &T {
        &self.values[index(&self.classes, class)]
    }
}

impl<T> IndexMut<UnitClass> for PerClass<T> {
    fn index_mut(&mut self, class: UnitClass) -> &mut T {
        &mut self.values[index(&self.classes, class)]
    }
}

impl<T: Default> Default for PerClass<T> {
    fn default() -> PerClass<T> {
        PerClass::new(&UnitClasses::default(), |_| T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_equal_shape_are_of_one_class() {
        let classes = UnitClasses::of_shapes([96, 32, 96, 64, 32]);
        let of_layers: Vec<UnitClass> = (0..6).map(|layer| classes.class_of(Unit::Layer(layer))).collect();
        assert_eq!(of_layers, [0, 1, 0, 2, 1, 0].map(UnitClass::Layer));
        let first: Vec<Unit> = classes.all().map(|class| classes.first(class)).collect();
        assert_eq!(first[..3], [Unit::Table, Unit::Embedding, Unit::Head]);
        assert_eq!(first[3..6], [0, 1, 3].map(Unit::Layer));
        assert_eq!(first[6..9], [0, 1, 3].map(Unit::Adapters));
        assert_eq!(first[9..], [0, 1, 3].map(Unit::Experts));

        let equal = UnitClasses::of_shapes([96; 5]);
        assert_eq!(equal, UnitClasses::default());
        assert_eq!(equal.class_of(Unit::Layer(4)), UnitClass::Layer(0));
    }

    #[test]
    fn a_value_is_that_of_the_class_of_its_unit() {
        let classes = UnitClasses::of_shapes([96, 32, 96]);
        let firsts = PerClass::new(&classes, |class| classes.first(class));
        assert_eq!(*firsts.of(Unit::Layer(2)), Unit::Layer(0));
        assert_eq!(*firsts.of(Unit::Layer(1)), Unit::Layer(1));
        assert_eq!(firsts.of_layers(), [Unit::Layer(0), Unit::Layer(1)]);
        let names = firsts.map(|class, unit| format!("{class:?} {unit}"));
        assert_eq!(names[UnitClass::Layer(1)], "Layer(1) layer 1");
        assert_eq!(names[UnitClass::Head], "Head head");
    }
}
