package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// chart is a picture of horizontal bars, in panels one below the other.
type chart struct {
	File, Title string
	Panels      []panel
}

// panel has a scale of its own, from 0 to its largest value.
type panel struct {
	Title string
	Bars  []bar
}

// bar is a value with its range.
type bar struct {
	Name  string
	Value spread
	Text  string
}

// Measures of a chart, in pixels.
const (
	chartWidth  = 860
	chartMargin = 16
	barStart    = 230 // names are to the left
	barLength   = 400 // values are to the right
	barHeight   = 16
	barStep     = 24
	lineHeight  = 30
)

// svg draws the chart. Bars end at the median, a line shows the range.
func (c chart) svg() []byte {
	height := chartMargin + lineHeight
	for _, p := range c.Panels {
		height += lineHeight + barStep*len(p.Bars) + chartMargin
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	y := chartMargin + barHeight
	text(&b, chartMargin, y, `font-size="17" font-weight="bold"`, c.Title)
	y += lineHeight
	for _, p := range c.Panels {
		text(&b, chartMargin, y, `font-weight="bold"`, p.Title)
		y += lineHeight - barHeight
		largest := 0.0
		for _, bar := range p.Bars {
			largest = max(largest, bar.Value.high)
		}
		for i, bar := range p.Bars {
			bar.draw(&b, y+i*barStep, largest)
		}
		y += barStep*len(p.Bars) + chartMargin + barHeight
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (v bar) draw(b *bytes.Buffer, y int, largest float64) {
	x := func(value float64) float64 {
		if largest == 0 {
			return barStart
		}
		return barStart + barLength*value/largest
	}
	color := "#9aa5b1"
	if len(v.Name) >= len("GopherQueue") && v.Name[:len("GopherQueue")] == "GopherQueue" {
		color = "#2f6fb0"
	}
	middle := float64(y) + barHeight/2.0
	text(b, barStart-8, y+barHeight-4, `text-anchor="end"`, v.Name)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", barStart, y, x(v.Value.mid)-barStart, barHeight, color)
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%[2]g" stroke="#222" stroke-width="2"/>`+"\n", x(v.Value.low), middle, x(v.Value.high))
	text(b, int(x(v.Value.high))+8, y+barHeight-4, "", v.Text)
}

// text writes a line of text with attributes.
func text(b *bytes.Buffer, x, y int, attributes, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>`, x, y, attributes)
	_ = xml.EscapeText(b, []byte(s)) // a buffer takes everything
	b.WriteString("</text>\n")
}
