package steps

import (
	"bytes"
	"reflect"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, c := range []Checkpoint{
		{},
		{Own: []byte("page 7")},
		{Own: []byte(magic + "not an envelope")},
		{Steps: []Step{{"charge", []byte(`{"ID":"r1"}`)}}},
		{Own: []byte("x"), Steps: []Step{{"charge", []byte("1")}, {"pack", []byte{}}}},
	} {
		got, err := Parse(Append(nil, c))
		if err != nil || !bytes.Equal(got.Own, c.Own) || !reflect.DeepEqual(got.Steps, c.Steps) {
			t.Errorf("%+v became %+v: %v", c, got, err)
		}
	}
}

func TestPlainStaysPlain(t *testing.T) {
	if got := Append(nil, Checkpoint{Own: []byte("page 7")}); string(got) != "page 7" {
		t.Errorf("stored as %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("page 7"))
	f.Add(Append(nil, Checkpoint{Own: []byte("x"), Steps: []Step{{"charge", []byte("1")}}}))
	f.Add([]byte(magic + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, c))
		if err != nil || !bytes.Equal(again.Own, c.Own) || !reflect.DeepEqual(again.Steps, c.Steps) {
			t.Errorf("%q read as %+v, then as %+v: %v", data, c, again, err)
		}
	})
}
