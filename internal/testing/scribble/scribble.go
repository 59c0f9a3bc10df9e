// Package scribble detects shared memory. A test copies an answer with [Copy],
// overwrites the answer with [Over], and then checks what must not have changed.
package scribble

import (
	"reflect"
	"time"
)

var instant = reflect.TypeFor[time.Time]()

// Copy returns a copy of v that shares no memory with it. Values behind interfaces with
// methods, such as errors, and unexported fields are copied as they are.
func Copy[T any](v T) T {
	return copyOf(reflect.ValueOf(&v).Elem()).Interface().(T)
}

func copyOf(v reflect.Value) reflect.Value {
	t := v.Type()
	out := reflect.New(t).Elem()
	switch {
	case t == instant || v.IsZero():
		out.Set(v)
		return out
	case t.Kind() == reflect.Pointer:
		out.Set(reflect.New(t.Elem()))
		out.Elem().Set(copyOf(v.Elem()))
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8: // there may be 16 MiB
		out.Set(reflect.MakeSlice(t, v.Len(), v.Len()))
		reflect.Copy(out, v)
	case t.Kind() == reflect.Slice:
		out.Set(reflect.MakeSlice(t, v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(copyOf(v.Index(i)))
		}
	case t.Kind() == reflect.Map:
		out.Set(reflect.MakeMap(t))
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), copyOf(it.Value()))
		}
	case t.Kind() == reflect.Interface && t.NumMethod() == 0:
		out.Set(copyOf(v.Elem()))
	case t.Kind() == reflect.Struct:
		out.Set(v)
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				out.Field(i).Set(copyOf(v.Field(i)))
			}
		}
	default:
		out.Set(v)
	}
	return out
}

// Over overwrites all memory reachable from v, a pointer, slice or map: the targets of
// pointers, the elements of slices up to their capacity, and the entries of maps.
func Over(v any) { over(reflect.ValueOf(v), map[uintptr]bool{}) }

func over(v reflect.Value, seen map[uintptr]bool) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		over(v.Elem(), seen)
	case reflect.Slice:
		all := v.Slice(0, v.Cap())
		for i := range all.Len() {
			over(all.Index(i), seen)
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		for it := v.MapRange(); it.Next(); {
			changed := reflect.New(t.Elem()).Elem()
			changed.Set(it.Value())
			over(changed, seen)
			v.SetMapIndex(it.Key(), changed)
		}
		added := reflect.New(t.Key()).Elem()
		over(added, seen)
		v.SetMapIndex(added, reflect.Zero(t.Elem()))
	case reflect.Struct:
		if t == instant {
			if v.CanSet() {
				v.Set(reflect.ValueOf(v.Interface().(time.Time).Add(987654321 * time.Second)))
			}
			return
		}
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				over(v.Field(i), seen)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			over(v.Index(i), seen)
		}
	default:
		overwrite(v)
	}
}

// overwrite changes a plain value.
func overwrite(v reflect.Value) {
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(^v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(^v.Uint())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(-v.Float() - 1)
	case reflect.String:
		v.SetString("scribbled over " + v.String())
	default: // interfaces, functions and channels are shared on purpose
	}
}
