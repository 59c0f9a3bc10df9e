// Package storeurl parses the URLs of stores.
package storeurl

import (
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// URL is the parsed URL of a store.
type URL struct {
	Scheme string // "memory", "file", "postgres" or "postgresql"
	Dir    string // of a file store; the rest of a PostgreSQL one
}

func (u URL) String() string { return u.Scheme + ":" + u.Dir }

// Forms lists the forms of a URL, for help and errors.
const Forms = "memory:, file:DIR or postgres://…"

// Parse parses memory:, file:DIR, file:///DIR and postgres://…. It does not decode DIR.
func Parse(text string) (URL, error) {
	fail := func(format string, args ...any) (URL, error) {
		return URL{}, &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: fmt.Sprintf(format, args...)}}}
	}
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return fail("%q is not a store URL; want %s", text, Forms)
	case (scheme == "postgres" || scheme == "postgresql") && strings.HasPrefix(rest, "//"):
		return URL{scheme, rest}, nil
	case scheme == "memory" && rest == "":
		return URL{Scheme: scheme}, nil
	case scheme == "memory":
		return fail("%q: nothing may follow memory:", text)
	case scheme != "file":
		return fail("%q: unknown kind of store %q; want %s", text, scheme, Forms)
	}
	if path, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(path, "/") {
			return fail("%q names a host; want file:DIR or file:///DIR", text)
		}
		rest = path
	}
	if rest == "" {
		return fail("%q: the directory is missing; want file:DIR", text)
	}
	if strings.ContainsRune(rest, 0) {
		return fail("%q: a directory's name has no NUL", text)
	}
	return URL{scheme, rest}, nil
}
