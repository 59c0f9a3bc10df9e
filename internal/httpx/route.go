package httpx

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

// Route is one operation of an API, made by [Handle], [Stream] or [Plain].
type Route struct {
	Method, Path string // the path without the API's base
	ID           string // operation id; "" leaves the route out of the OpenAPI document
	Tag          string
	Summary      string
	Description  string
	Status       int               // on success; 0 is 200
	Also         map[int]string    // more success statuses, with the same body unless 204
	Headers      map[string]string // response headers on success, with descriptions
	Large        bool              // the body may carry payloads; otherwise the limit is 256 KiB
	Optional     bool              // the body may be missing
	Open         bool              // needs no token
	Refusals     map[string]string // error statuses with their meaning; nil is [AnyRefusals]
	Responses    map[string]*Response
	Forms        Content // more content types of a success; see [Answer.Form]
	Body         *Schema // overrides the schema of the body's type

	// Allow rejects unauthorized callers before the body is read. nil allows everyone.
	Allow func(*Call) error

	do         func(*Call) error
	parameters []parameter
	body       reflect.Type // nil for none
	answer     reflect.Type // nil for none
}

// None stands for no parameters, no body or no answer.
type None struct{}

// Text is a body that the handler decodes itself. An empty body is {}.
type Text []byte

// Answer is a handler's response.
type Answer[T any] struct {
	Status int // 0 is the route's own; 204 has no body
	Body   T

	// Form is one of the route's other content types and Other the body in that form; "" is Body as JSON.
	Form  string
	Other any
}

// OK returns a response with the route's own status.
func OK[T any](body T) *Answer[T] { return &Answer[T]{Body: body} }

// Handle makes a route from a function. I's fields are the parameters, tagged path, query
// or header; B is the request body and T the response body.
func Handle[I, B, T any](r Route, do func(ctx context.Context, in *I, body *B) (*Answer[T], error)) Route {
	r.parameters = parametersOf(reflect.TypeFor[I]())
	r.body, r.answer = some(reflect.TypeFor[B]()), some(reflect.TypeFor[T]())
	status := cmp.Or(r.Status, http.StatusOK)
	r.do = func(c *Call) error {
		in, body := new(I), new(B)
		if err := bind(c, in); err != nil {
			return err
		}
		if c.route.body != nil {
			if err := c.decode(body); err != nil {
				return err
			}
		}
		out, err := do(c.Request.Context(), in, body)
		if err != nil {
			return err
		}
		status := status
		if out != nil && out.Status != 0 {
			status = out.Status
		}
		if out == nil || status == http.StatusNoContent {
			c.WriteHeader(status)
			return nil
		}
		if out.Form != "" {
			return c.answer(status, out.Form, out.Other)
		}
		return c.answer(status, "application/json", &out.Body)
	}
	return r
}

func some(t reflect.Type) reflect.Type {
	if t == reflect.TypeFor[None]() {
		return nil
	}
	return t
}

// Stream makes a route from a function that writes the response itself.
func Stream[I any](r Route, do func(c *Call, in *I) error) Route {
	r.parameters = parametersOf(reflect.TypeFor[I]())
	r.do = func(c *Call) error {
		in := new(I)
		if err := bind(c, in); err != nil {
			return err
		}
		return do(c, in)
	}
	return r
}

// Plain makes a route that is left out of the OpenAPI document and accepts any query.
func Plain(method, path string, do func(*Call) error) Route {
	return Route{Method: method, Path: path, do: do}
}

// decode parses the request body.
func (c *Call) decode(into any) error {
	data, err := c.body()
	if err != nil {
		return err
	}
	if text, ok := into.(*Text); ok {
		if *text = data; data == nil {
			*text = Text("{}")
		}
		return nil
	}
	if data == nil && c.route.Optional {
		return nil
	}
	return wire.DecodeJSON(data, into)
}

// parameter describes one field of a parameter struct.
type parameter struct {
	in, name string // path, query or header
	list     bool   // may be repeated
	explode  bool   // repetition only; a comma does not separate values
	field    reflect.StructField
}

func parametersOf(t reflect.Type) (all []parameter) {
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			if tag := f.Tag.Get(in); tag != "" {
				name, rest, _ := strings.Cut(tag, ",")
				all = append(all, parameter{in, name, f.Type.Kind() == reflect.Slice, rest == "explode", f})
			}
		}
	}
	return all
}

// bind sets the call's parameters and reports every fault in its query.
func bind(c *Call, in any) error {
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	var faults []gq.Fault
	if err != nil {
		faults = append(faults, gq.Fault{Field: "query", Problem: "is not well-formed"})
	}
	v := reflect.ValueOf(in).Elem()
	var known []string
	for _, p := range c.route.parameters {
		var given []string
		switch p.in {
		case "path":
			given = []string{c.Request.PathValue(p.name)}
		case "header":
			given = c.Request.Header.Values(p.name)
			given = given[:min(1, len(given))]
		default:
			known = append(known, p.name)
			given = query[p.name]
			delete(query, p.name)
			if len(given) > 1 && !p.list {
				faults = append(faults, gq.Fault{Field: p.name, Problem: "is given twice"})
			}
		}
		if len(given) > 0 {
			set(v.FieldByIndex(p.field.Index), given)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		faults = append(faults, gq.Fault{Field: fmt.Sprintf("%.64s", strings.ToValidUTF8(name, "?")), Problem: "is not a parameter of this operation; " + among(known)})
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

func among(known []string) string {
	if len(known) == 0 {
		return "it takes none"
	}
	return "it takes " + strings.Join(known, ", ")
}

// set assigns text to a field: a string, a pointer to one, or a list of them.
func set(field reflect.Value, given []string) {
	switch field.Kind() {
	case reflect.Slice:
		list := reflect.MakeSlice(field.Type(), len(given), len(given))
		for i, text := range given {
			list.Index(i).SetString(text)
		}
		field.Set(list)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		field.Elem().SetString(given[0])
	default:
		field.SetString(given[0])
	}
}
