package gq

import "maps"

// MetadataPatch changes the metadata of a live job. Zero fields change nothing.
type MetadataPatch struct {
	Priority      Priority          // can change while no worker holds the job
	SetTags       map[string]string // tags to add or replace
	DropTags      []string          // tags to remove; unknown tags are ignored
	CorrelationID *string
	CallbackURL   *string
}

// Empty reports whether the patch changes nothing.
func (p MetadataPatch) Empty() bool {
	return p.Priority == 0 && len(p.SetTags) == 0 && len(p.DropTags) == 0 && p.CorrelationID == nil && p.CallbackURL == nil
}

// Apply returns a patched copy of m.
func (p MetadataPatch) Apply(m Metadata) Metadata {
	if p.Priority != 0 {
		m.Priority = p.Priority
	}
	if len(p.SetTags) > 0 || len(p.DropTags) > 0 {
		tags := make(map[string]string, len(m.Tags)+len(p.SetTags))
		maps.Copy(tags, m.Tags)
		for _, name := range p.DropTags {
			delete(tags, name)
		}
		maps.Copy(tags, p.SetTags)
		if len(tags) == 0 {
			tags = nil
		}
		m.Tags = tags
	}
	if p.CorrelationID != nil {
		m.CorrelationID = *p.CorrelationID
	}
	if p.CallbackURL != nil {
		m.CallbackURL = *p.CallbackURL
	}
	return m
}
