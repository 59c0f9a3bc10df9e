package machine_test

import (
	"encoding"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// checkNames checks an enumeration: its values have these names in this order, a name
// parses to its value, and no other text is a name.
func checkNames[T interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}](t *testing.T, values []T, parse func(string) (T, error), names ...string) {
	t.Helper()
	if len(values) != len(names) {
		t.Fatalf("%d values, want %d", len(values), len(names))
	}
	for i, v := range values {
		text, err := v.MarshalText()
		if v.String() != names[i] || string(text) != names[i] || err != nil {
			t.Errorf("value %d prints %q and marshals to %q, %v; want %q", v, v, text, err, names[i])
		}
		if got, err := parse(names[i]); got != v || err != nil {
			t.Errorf("%q is read as %v, %v", names[i], got, err)
		}
		got := T(0)
		if err := any(&got).(encoding.TextUnmarshaler).UnmarshalText(text); got != v || err != nil {
			t.Errorf("%q is unmarshalled as %v, %v", text, got, err)
		}
	}
	for _, name := range []string{"", "no such name", names[0] + " ", strings.ToTitle(names[0]) + "x"} {
		got := T(200)
		if _, err := parse(name); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%q is read: %v", name, err)
		}
		if err := any(&got).(encoding.TextUnmarshaler).UnmarshalText([]byte(name)); !errors.Is(err, gq.ErrInvalid) || got != 200 {
			t.Errorf("%q is unmarshalled as %v, %v", name, got, err)
		}
	}
	for _, v := range []T{0, T(len(names) + 1), 255} {
		if !strings.HasPrefix(v.String(), "unknown(") {
			t.Errorf("value %d outside the vocabulary prints %q", v, v)
		}
	}
}
