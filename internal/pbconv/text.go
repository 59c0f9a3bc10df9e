package pbconv

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/gopherqueue/gq"
)

// Strings in a message must be valid UTF-8. The protobuf library rejects an invalid one
// without naming it; the code below finds it.

const notUTF8 = "must be valid UTF-8"

// CheckText reports strings in a message that are not valid UTF-8.
func CheckText(m proto.Message) error {
	var r protoReader
	r.texts("", m.ProtoReflect())
	return r.err()
}

func (r *protoReader) texts(at string, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := at + string(f.Name())
		check := func(name string, v protoreflect.Value) {
			switch {
			case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
				r.fault(shown(name), "", notUTF8)
			case f.Kind() == protoreflect.MessageKind:
				r.texts(name+".", v.Message())
			}
		}
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if f.MapKey().Kind() == protoreflect.StringKind && !utf8.ValidString(k.String()) ||
					f.MapValue().Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()) {
					r.fault(shown(fmt.Sprintf("%s[%.64q]", name, k.String())), "", notUTF8)
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				check(fmt.Sprintf("%s[%d]", name, i), v.List().Get(i))
			}
		default:
			check(name, v)
		}
		return true
	})
}

// shown returns a field name as users know it: a spec's fields have no prefix.
func shown(field string) string { return strings.TrimPrefix(field, "spec.") }

// Malformed explains why data cannot be decoded as a message.
func Malformed(data []byte, m protoreflect.MessageDescriptor) error {
	var r protoReader
	if !r.bytes("", data, m, 0) || len(r.faults) == 0 {
		r.faults = append(r.faults, gq.Fault{Field: "request", Problem: fmt.Sprintf("is not a valid %s message", m.FullName())})
	}
	return r.err()
}

// maxNesting limits the nesting of messages.
const maxNesting = 100

// bytes reports invalid strings. It returns false if the data is not a message at all.
func (r *protoReader) bytes(at string, data []byte, m protoreflect.MessageDescriptor, depth int) bool {
	if depth > maxNesting {
		return false
	}
	seen := make(map[protowire.Number]int)
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		f := m.Fields().ByNumber(number)
		if kind != protowire.BytesType || f == nil {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return false
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		name := at + string(f.Name())
		if f.IsList() || f.IsMap() {
			name = fmt.Sprintf("%s[%d]", name, seen[number])
			seen[number]++
		}
		switch {
		case f.IsMap():
			before := len(r.faults)
			ok := r.bytes("", value, f.Message(), depth+1)
			if len(r.faults) > before {
				r.faults = append(r.faults[:before], gq.Fault{Field: shown(name), Problem: notUTF8})
			}
			if !ok {
				return false
			}
		case f.Kind() == protoreflect.MessageKind:
			if !r.bytes(name+".", value, f.Message(), depth+1) {
				return false
			}
		case f.Kind() == protoreflect.StringKind && !utf8.Valid(value):
			r.fault(shown(name), "", notUTF8)
		}
	}
	return true
}
