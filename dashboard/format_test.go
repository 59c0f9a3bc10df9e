package dashboard

import (
	"strings"
	"testing"
)

func TestTextIsCutBetweenCharacters(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", maxLine), "a" + strings.Repeat("é", maxLine), strings.Repeat("€", maxLine), "a" + strings.Repeat("😀", maxLine)} {
		line := oneLine(text)
		if strings.Contains(line, `\x`) || len(line) < maxLine-4 {
			t.Errorf("%.10s… became %q", text, line)
		}
		if cut := clean(text, maxLine); strings.Contains(printable(cut), `\x`) {
			t.Errorf("%.10s… was cut to %q", text, cut)
		}
		view := jobView{Shown: "result"}
		view.Result = []byte(strings.Repeat(text, maxText/len(text)+1))
		if view.readPart(); strings.Contains(view.Text, `\x`) || !view.Cut || len(view.Text) < maxText-4 {
			t.Errorf("%.10s… ends in %q", text, view.Text[len(view.Text)-10:])
		}
	}
	// What is not UTF-8 is shown too.
	if line := oneLine(strings.Repeat("\x80", 2*maxLine)); !strings.HasPrefix(line, `\x80\x80`) {
		t.Errorf("bytes became %.20q", line)
	}
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{"": "", "no such job": "No such job.", "état inconnu.": "État inconnu.", "\xffx": "\xffx.", "“a” is no state": "“a” is no state."} {
		if got := sentence(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// Indentation would turn a small text of deeply nested arrays into hundreds of megabytes.
func TestDeeplyNestedTextIsNotIndented(t *testing.T) {
	const levels = 9000 // the parser accepts 10,000
	view := jobView{Shown: "result"}
	view.Result = []byte(strings.Repeat("[", levels) + strings.Repeat("]", levels))
	if n := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			view.readPart()
		}
	}).AllocedBytesPerOp(); n > 1<<20 {
		t.Errorf("a text of %d bytes needed %d bytes of memory", len(view.Result), n)
	}
	if view.Text != string(view.Result) {
		t.Errorf("the text is %.20q…", view.Text)
	}
	view.Result = []byte(`{"a":["[[{\"",{"b":1}]}`)
	if view.readPart(); !strings.Contains(view.Text, "\n    {\n      \"b\": 1\n    }") {
		t.Errorf("the text is not indented: %s", view.Text)
	}
	if n := depth(view.Result); n != 3 {
		t.Errorf("the depth is %d", n)
	}
}
