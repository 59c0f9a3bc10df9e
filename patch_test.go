package gq_test

import (
	"maps"
	"testing"

	"github.com/gopherqueue/gq"
)

func TestMetadataPatch(t *testing.T) {
	old := gq.Metadata{Priority: gq.PriorityLow, Tags: map[string]string{"a": "1", "b": "2"}, CorrelationID: "c", CallbackURL: "https://example.com"}
	empty := ""
	for name, test := range map[string]struct {
		patch gq.MetadataPatch
		want  gq.Metadata
	}{
		"Nothing":  {gq.MetadataPatch{}, old},
		"Priority": {gq.MetadataPatch{Priority: gq.PriorityHigh}, gq.Metadata{Priority: gq.PriorityHigh, Tags: old.Tags, CorrelationID: "c", CallbackURL: old.CallbackURL}},
		"Clear":    {gq.MetadataPatch{CorrelationID: &empty, CallbackURL: &empty}, gq.Metadata{Priority: gq.PriorityLow, Tags: old.Tags}},
		"Tags": {
			gq.MetadataPatch{SetTags: map[string]string{"a": "3", "c": "4"}, DropTags: []string{"a", "b", "z"}},
			gq.Metadata{Priority: gq.PriorityLow, Tags: map[string]string{"a": "3", "c": "4"}, CorrelationID: "c", CallbackURL: old.CallbackURL},
		},
		"NoTags": {
			gq.MetadataPatch{DropTags: []string{"a", "b"}},
			gq.Metadata{Priority: gq.PriorityLow, CorrelationID: "c", CallbackURL: old.CallbackURL},
		},
	} {
		before := maps.Clone(old.Tags)
		got := test.patch.Apply(old)
		if !got.Equal(test.want) || test.patch.Empty() != (name == "Nothing") {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		if !maps.Equal(before, old.Tags) {
			t.Errorf("%s changed what it was given", name)
		}
	}
}
