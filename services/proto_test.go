package services_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew: only after an entry in docs/change-control.md")

// describe lists everything in a file that affects the wire format: names, numbers and
// types.
func describe(file protoreflect.FileDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "file %s\npackage %s\n", file.Path(), file.Package())
	for i := range file.Imports().Len() {
		fmt.Fprintf(&b, "import %s\n", file.Imports().Get(i).Path())
	}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		fmt.Fprintf(&b, "service %s\n", s.Name())
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			fmt.Fprintf(&b, "  rpc %s(%s) returns (%s)\n", m.Name(), m.Input().FullName(), m.Output().FullName())
		}
	}
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		fmt.Fprintf(&b, "enum %s\n", e.Name())
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			fmt.Fprintf(&b, "  %s = %d\n", v.Name(), v.Number())
		}
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		fmt.Fprintf(&b, "message %s\n", m.Name())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			fmt.Fprintf(&b, "  %s %s = %d\n", typeOf(f), f.Name(), f.Number())
		}
	}
	return b.String()
}

func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeOf(f.MapKey()), typeOf(f.MapValue()))
	case f.Enum() != nil:
		name = string(f.Enum().FullName())
	case f.Message() != nil:
		name = string(f.Message().FullName())
	}
	if f.IsList() {
		return "repeated " + name
	}
	return name
}

// The golden file was compared with the frozen document field by field. The wire format
// never changes; additions need an entry in docs/change-control.md.
func TestProtoIsFrozen(t *testing.T) {
	spec.Covers(t, "T-26", "T-27", "T-28", "T-29", "T-30", "T-31", "T-40", "T-105", "T-110", "T-111", "T-112", "T-113", "T-122", "T-123", "T-260", "T-261",
		"T-127", "T-128", "T-129", "T-130", "T-132", "T-133", "T-134", "T-136", "T-137", "T-138", "T-139", "T-145", "T-146", "T-147", "T-148", "T-149", "T-256", "T-258",
		"T-155", "T-160", "T-161", "T-165", "T-166", "T-167", "T-168", "T-169", "T-170", "T-171", "T-172", "T-174", "T-175", "T-176", "T-178", "T-179",
		"T-180", "T-181", "T-182", "T-183", "T-186", "T-187", "T-188", "T-193", "T-194", "T-206", "T-207")
	got := describe(publicpb.File_taskqueue_public_proto) + "\n" + describe(internalpb.File_taskqueue_internal_proto)
	const golden = "testdata/taskqueue.golden"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the protocol changed:\n%s", got)
	}
}

// Rules that hold for the whole schema.
func TestProtoShape(t *testing.T) {
	spec.Covers(t, "T-27", "T-29", "T-31", "T-71", "T-122", "T-124", "T-126", "T-133", "T-192", "T-193", "T-258", "T-262")
	public, internal := publicpb.File_taskqueue_public_proto, internalpb.File_taskqueue_internal_proto
	calls := func(f protoreflect.FileDescriptor) (n int) {
		for i := range f.Services().Len() {
			n += f.Services().Get(i).Methods().Len()
		}
		return n
	}
	if public.Services().Len() != 1 || calls(public) != 5 || internal.Services().Len() != 4 || calls(internal) != 14 {
		t.Errorf("%d and %d calls", calls(public), calls(internal))
	}
	for _, file := range []protoreflect.FileDescriptor{public, internal} {
		for i := range file.Messages().Len() {
			m := file.Messages().Get(i)
			if d := depth(m); d > 2 {
				t.Errorf("%s nests %d deep", m.Name(), d)
			}
			for j := range m.Fields().Len() {
				name, kind := string(m.Fields().Get(j).Name()), m.Fields().Get(j).Kind()
				switch {
				case strings.HasSuffix(name, "_at_ms") && kind != protoreflect.Int64Kind,
					strings.HasSuffix(name, "_ms") && !strings.HasSuffix(name, "_at_ms") && kind != protoreflect.Uint32Kind,
					strings.HasSuffix(name, "_id") && kind != protoreflect.StringKind,
					name == "output_bytes" && kind != protoreflect.BytesKind,
					name == "priority":
					t.Errorf("%s.%s is %v", m.Name(), name, kind)
				case file == public && (strings.Contains(name, "node") || strings.Contains(name, "worker") || strings.Contains(name, "owner")):
					t.Errorf("%s.%s tells of a design", m.Name(), name)
				}
			}
		}
	}
}

// Errors are reported only by codes: no message contains error details, ours or a
// library's, at any depth.
func TestProtoHasNoErrorInfo(t *testing.T) {
	spec.Covers(t, "T-257")
	seen := make(map[protoreflect.FullName]bool)
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		if name := strings.ToLower(string(m.Name())); strings.Contains(name, "error") || strings.HasPrefix(string(m.FullName()), "google.rpc.") || m.FullName() == "google.protobuf.Any" {
			t.Errorf("there is a message %s", m.FullName())
		}
		for i := range m.Messages().Len() {
			walk(m.Messages().Get(i))
		}
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{publicpb.File_taskqueue_public_proto, internalpb.File_taskqueue_internal_proto} {
		for i := range file.Messages().Len() {
			walk(file.Messages().Get(i))
		}
		for i := range file.Imports().Len() {
			if path := file.Imports().Get(i).Path(); path != "taskqueue_public.proto" {
				t.Errorf("%s imports %s", file.Path(), path)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d messages were looked at", len(seen))
	}
}

func depth(m protoreflect.MessageDescriptor) int {
	deepest := 0
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.Message() != nil && !f.IsMap() {
			deepest = max(deepest, 1+depth(f.Message()))
		}
	}
	return deepest
}

func TestProtoFiles(t *testing.T) {
	spec.Covers(t, "T-25", "T-32", "T-258", "T-281")
	files, err := filepath.Glob("../proto/*.proto")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(files, []string{"../proto/taskqueue_internal.proto", "../proto/taskqueue_public.proto"}) {
		t.Errorf("files %v", files)
	}
}
