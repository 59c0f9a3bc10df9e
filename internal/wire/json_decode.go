package wire

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/spelling"
)

// MaxJSONDepth is the maximum nesting of arrays and objects in a request, including
// payloads.
const MaxJSONDepth = 128

// maxFaults is the most faults reported for one body.
const maxFaults = 50

// DecodeJSON decodes one JSON value into a pointer to one of this package's types. It is
// strict: member names must be known, exact and unique, the text must be valid UTF-8, and
// nothing may follow the value. It reports every fault with its position as
// [gq.ErrInvalid].
func DecodeJSON(data []byte, into any) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	d := jsonDecoder{}
	if own, ok := into.(interface{ decodeJSON(*jsonDecoder, []byte) }); ok {
		own.decodeJSON(&d, trimJSON(data))
	} else {
		d.value(trimJSON(data), reflect.ValueOf(into).Elem(), "")
	}
	if len(d.faults) > 0 {
		return &gq.InvalidError{Faults: d.faults}
	}
	return nil
}

// checkJSON checks that data is JSON within our limits.
func checkJSON(data []byte) error {
	bad := func(format string, args ...any) error {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "body", Problem: fmt.Sprintf(format, args...)}}}
	}
	if len(trimJSON(data)) == 0 {
		return bad("is empty; want a JSON object")
	}
	if at := firstInvalidUTF8(data); at >= 0 {
		return bad("is not valid UTF-8 from byte %d on", at)
	}
	if !DepthWithin(data, MaxJSONDepth) {
		return bad("arrays and objects lie more than %d deep in each other", MaxJSONDepth)
	}
	if !json.Valid(data) {
		var value json.RawMessage
		err := json.Unmarshal(data, &value)
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return bad("is not JSON: byte %d: %s", e.Offset, e.Error())
		}
		return bad("is not JSON")
	}
	return nil
}

func firstInvalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// DepthWithin reports whether arrays and objects are nested at most this deep. The text
// need not be valid JSON.
func DepthWithin(data []byte, most int) bool {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			if depth++; depth > most {
				return false
			}
		case '}', ']':
			depth--
		}
	}
	return true
}

// stringEnd returns the index of the quote that ends the string starting at i, or the
// last index of data.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data) - 1
}

func trimJSON(data []byte) []byte { return bytes.Trim(data, " \t\r\n") }

// jsonDecoder collects the faults of a value.
type jsonDecoder struct{ faults []gq.Fault }

func (d *jsonDecoder) fault(path, format string, args ...any) {
	if path == "" {
		path = "body"
	}
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, gq.Fault{Field: path, Problem: fmt.Sprintf(format, args...)})
	}
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	bytesType       = reflect.TypeFor[[]byte]()
)

// value decodes valid JSON into v.
func (d *jsonDecoder) value(text []byte, v reflect.Value, path string) {
	t := v.Type()
	switch {
	case plain(text, t, v):
	case t == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(slices.Clone(text))
	case t.Kind() == reflect.Pointer:
		if string(text) == "null" {
			return
		}
		v.Set(reflect.New(t.Elem()))
		d.value(text, v.Elem(), path)
	case string(text) == "null":
		d.fault(path, "is null; leave it out or give a value")
	case reflect.PointerTo(t).Implements(jsonUnmarshaler), reflect.PointerTo(t).Implements(textUnmarshaler), t == bytesType:
		d.leaf(text, v, path)
	case t.Kind() == reflect.Struct:
		d.object(text, v, path)
	case t.Kind() == reflect.Slice:
		d.array(text, v, path)
	case t.Kind() == reflect.Map:
		d.dictionary(text, v, path)
	default:
		d.leaf(text, v, path)
	}
}

var (
	stringType = reflect.TypeFor[string]()
	boolType   = reflect.TypeFor[bool]()
	intType    = reflect.TypeFor[int]()
	int64Type  = reflect.TypeFor[int64]()
)

// plain decodes the usual strings, booleans and integers, for which leaf takes several times
// as long. It reports whether it did; leaf decodes the others and reports their faults.
func plain(text []byte, t reflect.Type, v reflect.Value) bool {
	switch t {
	case stringType:
		s, ok := plainString(text)
		if ok {
			v.SetString(s)
		}
		return ok
	case boolType:
		is := string(text) == "true"
		if is || string(text) == "false" {
			v.SetBool(is)
			return true
		}
	case intType, int64Type:
		n, err := strconv.ParseInt(string(text), 10, t.Bits())
		if err == nil { // valid JSON that it accepts is an integer
			v.SetInt(n)
		}
		return err == nil
	}
	return false
}

// leaf decodes a value without members or elements.
func (d *jsonDecoder) leaf(text []byte, v reflect.Value, path string) {
	if halfCharacter(text) {
		d.fault(path, halfProblem)
		return
	}
	err := json.Unmarshal(text, v.Addr().Interface())
	if err == nil {
		return
	}
	if faults := errs.FaultsOf(err); len(faults) > 0 {
		for _, f := range faults {
			d.fault(path, "%s", f.Problem)
		}
		return
	}
	d.fault(path, "%s is not %s", excerpt(text), wanted(v.Type()))
}

const halfProblem = `has half a surrogate pair such as \ud800, which is no character`

// halfCharacter reports whether a JSON text contains half a surrogate pair as an escape.
// That is valid JSON but not Unicode, and would silently become another character.
func halfCharacter(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; text[i] != 'u' {
			continue
		}
		first := escaped(text[i+1:])
		if !utf16.IsSurrogate(first) {
			continue
		}
		i += 5
		if i+1 >= len(text) || text[i] != '\\' || text[i+1] != 'u' || utf16.DecodeRune(first, escaped(text[i+2:])) == utf8.RuneError {
			return true
		}
		i += 5
	}
	return false
}

// escaped returns the code unit of the four hexadecimal digits at the start of text.
func escaped(text []byte) rune {
	n, err := strconv.ParseUint(string(text[:min(4, len(text))]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// wanted describes the JSON form of a type for error messages.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return `a duration such as "90s" or "1h30m"`
	case t.PkgPath() == "time" && t.Name() == "Time":
		return `an instant such as "2030-01-31T12:00:00Z"`
	case t == bytesType:
		return "base64 in a string"
	case t == reflect.TypeFor[Priority]():
		return "one of CRITICAL, HIGH, NORMAL, LOW, BULK or 0 to 4"
	case t == reflect.TypeFor[gq.JobID]():
		return "the id of a job"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Int32, reflect.Uint8:
		return "an integer in range"
	case reflect.Float64:
		return "a number"
	default:
		return "what belongs here"
	}
}

func excerpt(text []byte) string {
	switch {
	case len(text) > 0 && text[0] == '{':
		return "an object"
	case len(text) > 0 && text[0] == '[':
		return "an array"
	case len(text) > 60:
		return string(text[:50]) + "…"
	default:
		return string(text)
	}
}

// object decodes the members of a struct.
func (d *jsonDecoder) object(text []byte, v reflect.Value, path string) {
	if len(text) == 0 || text[0] != '{' {
		d.fault(path, "%s is not an object", excerpt(text))
		return
	}
	fields := fieldsOf(v.Type())
	var few [32]bool
	seen := few[:]
	if len(fields.names) > len(few) {
		seen = make([]bool, len(fields.names))
	}
	members(text, func(name string, value []byte) {
		field, known := fields.index[name]
		at := join(path, name)
		switch {
		case !known:
			problem := "is not a known field"
			if near := spelling.Nearest(name, fields.names); near != "" {
				problem += "; did you mean " + near + "?"
			}
			d.fault(clip(at), "%s", problem)
		case seen[field.place]:
			d.fault(at, "is given twice")
		default:
			seen[field.place] = true
			d.value(value, v.FieldByIndex(field.index), at)
		}
	})
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func clip(name string) string {
	const most = 100
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

func (d *jsonDecoder) array(text []byte, v reflect.Value, path string) {
	if len(text) == 0 || text[0] != '[' {
		d.fault(path, "%s is not an array", excerpt(text))
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, 0)
	elements(text, func(i int, value []byte) {
		element := reflect.New(v.Type().Elem()).Elem()
		if !plain(value, element.Type(), element) {
			d.value(value, element, fmt.Sprintf("%s[%d]", path, i))
		}
		out = reflect.Append(out, element)
	})
	v.Set(out)
}

func (d *jsonDecoder) dictionary(text []byte, v reflect.Value, path string) {
	if len(text) == 0 || text[0] != '{' {
		d.fault(path, "%s is not an object", excerpt(text))
		return
	}
	out := reflect.MakeMap(v.Type())
	if halfCharacter(text) {
		d.fault(path, halfProblem)
		return
	}
	members(text, func(name string, value []byte) {
		at := clip(fmt.Sprintf("%s[%q]", path, name))
		key := reflect.ValueOf(name)
		if out.MapIndex(key).IsValid() {
			d.fault(at, "is given twice")
			return
		}
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(value, element, at)
		out.SetMapIndex(key, element)
	})
	v.Set(out)
}

// fieldSet has the JSON names of a struct, including embedded structs.
type fieldSet struct {
	names []string
	index map[string]field
}

type field struct {
	place int // in names
	index []int
}

var fieldSets sync.Map // reflect.Type to *fieldSet

func fieldsOf(t reflect.Type) *fieldSet {
	if known, ok := fieldSets.Load(t); ok {
		return known.(*fieldSet)
	}
	set := &fieldSet{index: map[string]field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		set.index[name] = field{len(set.names), f.Index}
		set.names = append(set.names, name)
	}
	fieldSets.Store(t, set)
	return set
}
