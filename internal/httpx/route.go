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

// Route is an operation of an API. [Handle], [Stream] and [Plain] make one.
type Route struct {
	Method, Path string // the path without the API's base
	ID           string // of the operation; "" leaves it out of the description
	Tag          string
	Summary      string
	Description  string
	Status       int               // of a success; 0 is 200
	Also         map[int]string    // further successes, with the same answer unless 204
	Headers      map[string]string // of a success, with what they say
	Large        bool              // the body may carry payloads; otherwise 256 KiB are the most
	Optional     bool              // the body may be missing
	Open         bool              // needs no token
	Refusals     map[string]string // statuses of refusals with their meaning; nil is those of any API
	Responses    map[string]*Response
	Body         *Schema // of the body, where its type does not tell

	// Allow refuses callers who may not do this, before the body is read. nil allows.
	Allow func(*Call) error

	do         func(*Call) error
	parameters []parameter
	body       reflect.Type // nil for none
	answer     reflect.Type // nil for none
}

// None stands for no parameters, no body or no answer.
type None struct{}

// Text is a body that the handler decodes itself. A missing one is {}.
type Text []byte

// Answer is what a handler answers with.
type Answer[T any] struct {
	Status int // 0 is that of the route; 204 has no body
	Body   T
}

// OK is an answer with the route's own status.
func OK[T any](body T) *Answer[T] { return &Answer[T]{Body: body} }

// Handle makes a route of a function: I has the parameters as fields with a path, query
// or header tag, B is the body and T the answer.
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
		return c.answer(status, &out.Body)
	}
	return r
}

func some(t reflect.Type) reflect.Type {
	if t == reflect.TypeFor[None]() {
		return nil
	}
	return t
}

// Stream makes a route of a function that writes its answer itself.
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

// Plain makes a route that is not described and takes any query.
func Plain(method, path string, do func(*Call) error) Route {
	return Route{Method: method, Path: path, do: do}
}

// decode reads the body of a request.
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

// parameter is a field of a struct of parameters.
type parameter struct {
	in, name string // path, query or header
	list     bool   // may be repeated
	explode  bool   // may only be repeated, commas do not separate
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

// bind fills in the parameters of a call and reports everything wrong with its query.
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

// set puts text into a field: a string, a pointer to one, or a list of them.
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
