package httpx

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema is a JSON schema.
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
	Nullable             bool               `json:"-"` // null is allowed too
}

// MarshalJSON writes the type in the OpenAPI 3.1 form.
func (s *Schema) MarshalJSON() ([]byte, error) {
	if s.Ref != "" && s.Nullable {
		either := *s
		either.Ref, either.Nullable = "", false
		either.OneOf = []*Schema{{Ref: s.Ref}, {Type: "null"}}
		return either.MarshalJSON()
	}
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

// Enum describes a string with a fixed set of values.
func Enum[T fmt.Stringer](values []T) Schema {
	s := Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}

// Schemas derives schemas from Go types the way encoding/json encodes them. Each struct
// is described once, under its name; where two have one name, the later one is prefixed with its
// package.
type Schemas struct {
	NullLists bool // lists may be null

	forms map[reflect.Type]Schema
	named map[string]*Schema
	types map[string]reflect.Type
}

const schemaPrefix = "#/components/schemas/"

// NewSchemas makes an empty set. forms has the schemas of types that cannot be derived by
// reflection.
func NewSchemas(forms map[reflect.Type]Schema) *Schemas {
	return &Schemas{forms: forms, named: map[string]*Schema{}, types: map[string]reflect.Type{}}
}

// Form sets the schema of a type, like an entry of forms in [NewSchemas].
func (s *Schemas) Form(t reflect.Type, form Schema) { s.forms[t] = form }

// Named resolves a reference; any other schema is returned as it is.
func (s *Schemas) Named(schema *Schema) *Schema {
	if schema.Ref == "" {
		return schema
	}
	return s.named[schema.Name()]
}

// Name returns the name that a schema refers to, or "" if it is not a reference.
func (s *Schema) Name() string { return strings.TrimPrefix(s.Ref, schemaPrefix) }

// Of returns the schema of a type.
func (s *Schemas) Of(t reflect.Type) *Schema { return s.of(t, "") }

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// of returns the schema of a type. An anonymous struct is named after the hint.
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
		panic("httpx: no schema for " + t.String()) // a bug that any test finds
	}
}

// object describes a struct and returns a reference to it.
func (s *Schemas) object(t reflect.Type, hint string) *Schema {
	name := t.Name()
	if name == "" {
		name = hint
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	if known := s.types[name]; known != nil && known != t { // then the package tells them apart
		pkg := path.Base(t.PkgPath())
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	ref := &Schema{Ref: schemaPrefix + name}
	if known := s.types[name]; known == t {
		return ref
	} else if known != nil {
		panic(fmt.Sprintf("httpx: %v and %v have the same name", known, t)) // a bug that any test finds
	}
	out := &Schema{Type: "object", AdditionalProperties: false}
	s.types[name], s.named[name] = t, out
	for _, f := range membersOf(t) {
		member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "" {
			member = f.Name
		}
		if member == "-" || out.Properties[member] != nil { // hidden by the outer struct's member
			continue
		}
		property := s.ofField(&f, t.Name()+f.Name+"Struct")
		if strings.Contains(options, "omit") {
			property.Nullable = property.Nullable && (f.Type.Kind() != reflect.Pointer || f.Tag.Get("nullable") == "true")
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

// membersOf lists the exported fields of a struct, followed by those of embedded structs.
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

// ofField describes a field, using its tags: doc, nullable, format, example, enum,
// minimum and maximum.
func (s *Schemas) ofField(f *reflect.StructField, hint string) *Schema {
	out := s.of(f.Type, hint)
	if doc := f.Tag.Get("doc"); doc != "" {
		out.Description = doc
	}
	if nullable, err := strconv.ParseBool(f.Tag.Get("nullable")); err == nil {
		out.Nullable = nullable
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
