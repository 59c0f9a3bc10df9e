package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestSVG(t *testing.T) {
	c := chart{Title: "jobs/s", Panels: []panel{
		{"cycle", []bar{{"GopherQueue server", spread{50, 60, 100}, "60 (50–100)"}, {"a <b> & c", spread{10, 10, 10}, "10"}}},
		{"nothing", []bar{{"none", spread{}, "0"}}},
	}}
	text := c.svg()
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, text)
		}
	}
	for _, want := range []string{
		`a &lt;b&gt; &amp; c`,
		`60 (50–100)`,
		`width="240.0" height="16" fill="#2f6fb0"`, // the median, of the largest value
		`<line x1="430.0" y1="84.0" x2="630.0" y2="84"`,
		`width="40.0" height="16" fill="#9aa5b1"`,
		`width="0.0"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture lacks %s:\n%s", want, text)
		}
	}
}

// TestSVGFits checks that everything is inside the picture.
func TestSVGFits(t *testing.T) {
	c := chart{Title: "title", Panels: []panel{{"a", make([]bar, 3)}, {"b", make([]bar, 9)}}}
	var picture struct {
		Height int `xml:"height,attr"`
		Text   []struct {
			Y int `xml:"y,attr"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(c.svg(), &picture); err != nil {
		t.Fatal(err)
	}
	if n := len(picture.Text); n != 1+2+2*12 {
		t.Errorf("%d texts", n)
	}
	for _, line := range picture.Text {
		if line.Y > picture.Height {
			t.Errorf("a text at %d is below the picture of %d", line.Y, picture.Height)
		}
	}
}
