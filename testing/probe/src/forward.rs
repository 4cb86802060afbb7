//! Forwards the methods of a trait to the probed object.

macro_rules! forward {
    ($self:ident.$inner:ident; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&$self, $($arg: $type),*) $(-> $result)? {
            $self.$inner.$name($($arg),*)
        })*
    };
    (mut $self:ident.$inner:ident; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut $self, $($arg: $type),*) $(-> $result)? {
            $self.$inner.$name($($arg),*)
        })*
    };
}
pub(crate) use forward;
