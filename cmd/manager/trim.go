package main

import (
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim makes an object smaller before the cache stores it. It removes managed fields, which
// are not used, and shares equal texts of conditions between ten thousand hosts. It never
// returns an error.
func trim(in any) (any, error) {
	// An object without managed fields may have been trimmed and be in use already.
	object, err := meta.Accessor(in)
	if err != nil || object.GetManagedFields() == nil {
		return in, nil //nolint:nilerr // other objects are stored as they are
	}
	object.SetManagedFields(nil)
	if described, ok := in.(interface{ GetConditions() []metav1.Condition }); ok {
		conditions := described.GetConditions()
		for i := range conditions {
			c := &conditions[i]
			c.Type, c.Reason, c.Message = shared(c.Type), shared(c.Reason), shared(c.Message)
		}
	}
	return in, nil
}

// shared returns an equal string whose bytes are shared by all callers.
func shared(text string) string { return unique.Make(text).Value() }
