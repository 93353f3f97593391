package main

import (
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim makes an object smaller before the cache keeps it: without managed fields,
// which nobody reads, and with the texts of its conditions in memory once instead
// of once for each of ten thousand hosts. It never fails.
func trim(in any) (any, error) {
	// What has been here before may have readers by now, and is left alone.
	object, err := meta.Accessor(in)
	if err != nil || object.GetManagedFields() == nil {
		return in, nil //nolint:nilerr // the cache takes other things, too
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

// shared returns the text's equal. The garbage collector may forget an equal that
// nobody has asked for in a while; there is a further one from then on.
func shared(text string) string { return unique.Make(text).Value() }
