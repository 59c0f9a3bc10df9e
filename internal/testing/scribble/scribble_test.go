package scribble_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/scribble"
)

type inner struct{ N int }

type outer struct {
	Pointer *inner
	Slice   []inner
	Map     map[string][]byte
	Time    time.Time
	Array   [2]byte
	Text    string
	Flag    bool
	Share   float64
	Err     error
	private int
}

func example() outer {
	return outer{
		Pointer: &inner{1}, Slice: make([]inner, 2, 3), Map: map[string][]byte{"k": []byte("v")},
		Time: time.Unix(1, 0), Array: [2]byte{1, 2}, Text: "t", Flag: true, Share: 0.5, Err: errors.New("e"), private: 1,
	}
}

func TestCopySharesNothing(t *testing.T) {
	v := example()
	c := scribble.Copy(v)
	if !reflect.DeepEqual(v, c) {
		t.Fatalf("the copy of %+v is %+v", v, c)
	}
	was := scribble.Copy(v)
	scribble.Over(&c)
	if !reflect.DeepEqual(v, was) {
		t.Errorf("scribbling over a copy changed the original: %+v", v)
	}
}

func TestOverChangesEverything(t *testing.T) {
	v := example()
	was := scribble.Copy(v)
	lent := v // shares its pointer, slice and map
	spare := v.Slice[:3]
	scribble.Over(&lent)
	if v.Pointer.N == 1 || v.Slice[0].N == 0 || v.Slice[1].N == 0 || spare[2].N == 0 || string(v.Map["k"]) == "v" || len(v.Map) != 2 {
		t.Errorf("shared memory is unchanged: %+v", v)
	}
	if lent.Time.Equal(was.Time) || lent.Array == was.Array || lent.Text == was.Text || lent.Flag == was.Flag || lent.Share == was.Share {
		t.Errorf("plain fields are unchanged: %+v", lent)
	}
}

func TestCopyOfAny(t *testing.T) {
	v := map[string]any{"a": []inner{{1}}}
	c := scribble.Copy(v)
	scribble.Over(v["a"])
	if c["a"].([]inner)[0].N != 1 {
		t.Errorf("the copy changed with the original: %v", c)
	}
}
