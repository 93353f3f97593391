package reconcile_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

func TestHostEvents(t *testing.T) {
	type change struct{ before, after *infrav1.ElementalHost }
	version := func(v string) *infrav1.ElementalHost {
		h := newHost("h")
		h.ResourceVersion = v
		return h
	}
	old, changed := version("1"), version("2")
	for name, tc := range map[string]struct {
		created, deleted client.Object
		updated          [2]client.Object
		want             []change
	}{
		"created":                      {created: old, want: []change{{nil, old}}},
		"updated":                      {updated: [2]client.Object{old, changed}, want: []change{{old, changed}}},
		"resync":                       {updated: [2]client.Object{old, version("1")}},
		"deleted":                      {deleted: old, want: []change{{old, nil}}},
		"objects of other kinds":       {created: &infrav1.ElementalMachine{}, deleted: &infrav1.ElementalMachine{}},
		"updates of other kinds":       {updated: [2]client.Object{&infrav1.ElementalMachine{}, &infrav1.ElementalMachine{}}},
		"an old object of other kinds": {updated: [2]client.Object{&infrav1.ElementalMachine{}, changed}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []change
			h := reconcile.HostEvents(func(_ context.Context, before, after *infrav1.ElementalHost, _ reconcile.Queue) {
				got = append(got, change{before, after})
			})
			if tc.created != nil {
				h.Create(t.Context(), event.CreateEvent{Object: tc.created}, nil)
			}
			if tc.updated[0] != nil {
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: tc.updated[0], ObjectNew: tc.updated[1]}, nil)
			}
			if tc.deleted != nil {
				h.Delete(t.Context(), event.DeleteEvent{Object: tc.deleted}, nil)
			}
			NewWithT(t).Expect(got).To(Equal(tc.want))
		})
	}
}
