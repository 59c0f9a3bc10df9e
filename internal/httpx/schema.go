package httpx

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema describes a value in JSON.
type Schema struct {
	Ref                  string             `json:"$ref,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // false or a *Schema
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	ContentMediaType     string             `json:"contentMediaType,omitempty"`
	ContentSchema        *Schema            `json:"contentSchema,omitempty"`
	Description          string             `json:"description,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Examples             []any              `json:"examples,omitempty"`
	Format               string             `json:"format,omitempty"`
	Items                *Schema            `json:"items,omitempty"`
	Maximum              *float64           `json:"maximum,omitempty"`
	Minimum              *float64           `json:"minimum,omitempty"`
	OneOf                []*Schema          `json:"oneOf,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Properties           map[string]*Schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	Type                 string             `json:"-"`
	Nullable             bool               `json:"-"` // may be null beside its type
}

// MarshalJSON writes the type as OpenAPI 3.1 has it.
func (s *Schema) MarshalJSON() ([]byte, error) {
	type plain Schema
	out := struct {
		*plain
		Type any `json:"type,omitempty"`
	}{plain: (*plain)(s)}
	switch {
	case s.Type != "" && s.Nullable:
		out.Type = []string{s.Type, "null"}
	case s.Type != "":
		out.Type = s.Type
	}
	return json.Marshal(out)
}

// Enum describes one of some words.
func Enum[T fmt.Stringer](values []T) Schema {
	s := Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}

// Schemas describes Go types by what encoding/json makes of them. Structs are described
// once, under their name.
type Schemas struct {
	NullLists bool // lists may be null

	forms map[reflect.Type]Schema
	named map[string]*Schema
	types map[string]reflect.Type
}

const schemaPrefix = "#/components/schemas/"

// NewSchemas makes an empty set. forms describes types that do not tell themselves what
// they look like.
func NewSchemas(forms map[reflect.Type]Schema) *Schemas {
	return &Schemas{forms: forms, named: map[string]*Schema{}, types: map[string]reflect.Type{}}
}

// Form sets the form of a type, like the argument of [NewSchemas].
func (s *Schemas) Form(t reflect.Type, form Schema) { s.forms[t] = form }

// Named is the schema that a reference leads to, or the schema itself.
func (s *Schemas) Named(schema *Schema) *Schema {
	if schema.Ref == "" {
		return schema
	}
	return s.named[schema.Name()]
}

// Name is the name that a schema refers to, "" where it does not.
func (s *Schema) Name() string { return strings.TrimPrefix(s.Ref, schemaPrefix) }

// Of describes a type.
func (s *Schemas) Of(t reflect.Type) *Schema { return s.of(t, "") }

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// of describes a type. A struct without a name gets the hint for one.
func (s *Schemas) of(t reflect.Type, hint string) *Schema {
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	if form, ok := s.forms[t]; ok {
		form.Nullable = pointer
		return &form
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: "string", Format: "date-time", Nullable: pointer}
	case t == reflect.TypeFor[json.RawMessage]():
		return &Schema{}
	case reflect.PointerTo(t).Implements(textUnmarshaler):
		return &Schema{Type: "string", Nullable: pointer}
	}
	zero := 0.0
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean", Nullable: pointer}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer", Format: "int64", Nullable: pointer}
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return &Schema{Type: "integer", Format: "int32", Nullable: pointer}
	case reflect.Uint, reflect.Uint64:
		return &Schema{Type: "integer", Format: "int64", Minimum: &zero, Nullable: pointer}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return &Schema{Type: "integer", Format: "int32", Minimum: &zero, Nullable: pointer}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number", Format: "double", Nullable: pointer}
	case reflect.String:
		return &Schema{Type: "string", Nullable: pointer}
	case reflect.Slice:
		if t.Elem() == reflect.TypeFor[byte]() {
			return &Schema{Type: "string", ContentEncoding: "base64"}
		}
		return &Schema{Type: "array", Items: s.of(t.Elem(), hint), Nullable: s.NullLists}
	case reflect.Map:
		return &Schema{Type: "object", AdditionalProperties: s.of(t.Elem(), hint)}
	case reflect.Struct:
		return s.object(t, hint)
	case reflect.Interface:
		return &Schema{}
	default:
		panic("httpx: no schema for " + t.String()) // a defect, found by any test
	}
}

// object describes a struct and returns a reference to it.
func (s *Schemas) object(t reflect.Type, hint string) *Schema {
	name := t.Name()
	if name == "" {
		name = hint
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	ref := &Schema{Ref: schemaPrefix + name}
	if known := s.types[name]; known == t {
		return ref
	} else if known != nil {
		panic(fmt.Sprintf("httpx: %v and %v have the same name", known, t)) // a defect, found by any test
	}
	out := &Schema{Type: "object", AdditionalProperties: false}
	s.types[name], s.named[name] = t, out
	for _, f := range membersOf(t) {
		member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "" {
			member = f.Name
		}
		if member == "-" || out.Properties[member] != nil { // an outer struct's member hides it
			continue
		}
		property := s.ofField(&f, t.Name()+f.Name+"Struct")
		if strings.Contains(options, "omit") {
			property.Nullable = property.Nullable && f.Type.Kind() != reflect.Pointer
		} else {
			out.Required = append(out.Required, member)
		}
		if out.Properties == nil {
			out.Properties = map[string]*Schema{}
		}
		out.Properties[member] = property
	}
	return ref
}

// membersOf are the exported fields of a struct, and then those of the structs that it
// embeds.
func membersOf(t reflect.Type) (all []reflect.StructField) {
	var embedded []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		_, named := f.Tag.Lookup("json")
		switch {
		case f.Anonymous && !named && f.Type.Kind() == reflect.Struct:
			embedded = append(embedded, membersOf(f.Type)...)
		case f.IsExported():
			all = append(all, f)
		}
	}
	return append(all, embedded...)
}

// ofField describes a field with its tags: doc, nullable, format, example, enum, minimum
// and maximum.
func (s *Schemas) ofField(f *reflect.StructField, hint string) *Schema {
	out := s.of(f.Type, hint)
	if doc := f.Tag.Get("doc"); doc != "" {
		out.Description = doc
	}
	if f.Tag.Get("nullable") == "false" {
		out.Nullable = false
	}
	if example, ok := f.Tag.Lookup("example"); ok {
		out.Examples = []any{json.RawMessage(example)}
		if out.Type == "string" {
			out.Examples = []any{example}
		}
	}
	element := out
	if out.Items != nil {
		element = out.Items
	}
	if format := f.Tag.Get("format"); format != "" {
		element.Format = format
	}
	if words := f.Tag.Get("enum"); words != "" {
		element.Enum = strings.Split(words, ",")
	}
	for tag, bound := range map[string]**float64{"minimum": &element.Minimum, "maximum": &element.Maximum} {
		if n, err := strconv.ParseFloat(f.Tag.Get(tag), 64); err == nil {
			*bound = &n
		}
	}
	return out
}
