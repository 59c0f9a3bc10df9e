package gq_test

import (
	"encoding/json"
	"testing"

	"github.com/gopherqueue/gq"
)

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string // "" is refused
	}{
		{[]byte("{bad"), "{bad"}, // any bytes
		{json.RawMessage(`{"a": 1}`), `{"a": 1}`},
		{json.RawMessage("{bad"), ""},
		{json.RawMessage(`{"a":1} x`), ""},
		{map[string]int{"a": 1}, `{"a":1}`},
		{make(chan int), ""},
	} {
		got, err := gq.Encode(c.value)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%T %s: %q, %v, want %q", c.value, c.value, got, err, c.want)
		}
	}
}
