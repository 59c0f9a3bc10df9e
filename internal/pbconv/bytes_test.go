package pbconv

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unchecked encodes a message without checking its strings, like a careless client.
func unchecked(m proto.Message) []byte { return appendMessage(nil, m.ProtoReflect()) }

func appendMessage(b []byte, m protoreflect.Message) []byte {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				entry := appendField(nil, f.MapKey(), k.Value())
				entry = appendField(entry, f.MapValue(), v)
				b = protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), entry)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				b = appendField(b, f, v.List().Get(i))
			}
		default:
			b = appendField(b, f, v)
		}
		return true
	})
	return b
}

func appendField(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protowire.AppendString(protowire.AppendTag(b, f.Number(), protowire.BytesType), v.String())
	case protoreflect.BytesKind:
		return protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), v.Bytes())
	case protoreflect.MessageKind:
		return protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), appendMessage(nil, v.Message()))
	default:
		return b // numbers do not matter here
	}
}
