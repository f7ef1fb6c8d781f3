//! The parameter classes of OpenCL C's types, for every kind with an OpenCL C compiler.

use crate::backend::contract::ParameterClass;

/// The class of a parameter that kernels take by value; `Unknown` for all other types.
#[must_use]
pub fn class_of_value(type_name: &str) -> ParameterClass {
    match type_name {
        "char" | "signed char" => ParameterClass::Signed(1),
        "short" => ParameterClass::Signed(2),
        "int" => ParameterClass::Signed(4),
        "long" => ParameterClass::Signed(8),
        "uchar" | "unsigned char" => ParameterClass::Unsigned(1),
        "ushort" | "unsigned short" => ParameterClass::Unsigned(2),
        "uint" | "unsigned int" | "unsigned" => ParameterClass::Unsigned(4),
        "ulong" | "unsigned long" => ParameterClass::Unsigned(8),
        "float" => ParameterClass::Float(4),
        "double" => ParameterClass::Float(8),
        _ => ParameterClass::Unknown, // `half`, vectors, structures, images
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_types_have_two_spellings_and_vectors_are_unknown() {
        for (short, long) in [("uchar", "unsigned char"), ("uint", "unsigned int")] {
            assert_eq!(class_of_value(short), class_of_value(long));
        }
        assert_eq!(class_of_value("float4"), ParameterClass::Unknown);
        assert_eq!(class_of_value("long"), ParameterClass::Signed(8));
    }
}
