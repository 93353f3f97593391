//go:build simulator

package simulation_test

import (
	"fmt"
	"sync"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

// observer sees each change of the cluster's Machines and ElementalMachines.
type observer struct {
	mu sync.Mutex
	// made and gone are the names of objects that were created and deleted.
	made, gone []string
	// updating are the Machines of the control plane that are being updated, most is the largest number of them.
	updating map[types.UID]bool
	most     int
	ended    bool
}

// observe begins to watch.
func (u *upgradable) observe() *observer {
	u.t.Helper()
	o := &observer{updating: map[types.UID]bool{}}
	scheme, err := simulation.Scheme()
	u.Expect(err).NotTo(HaveOccurred())
	c, err := client.NewWithWatch(u.Management.Config, client.Options{Scheme: scheme})
	u.Expect(err).NotTo(HaveOccurred())
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &infrav1.ElementalMachineList{}} {
		u.Expect(c.List(u.t.Context(), list, client.InNamespace(simulation.Namespace))).To(Succeed())
		w, err := c.Watch(u.t.Context(), list, client.InNamespace(simulation.Namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		u.Expect(err).NotTo(HaveOccurred())
		var reading sync.WaitGroup
		reading.Go(func() {
			for event := range w.ResultChan() {
				o.see(event)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.ended = true
		})
		u.t.Cleanup(func() {
			w.Stop()
			reading.Wait()
		})
	}
	return o
}

func (o *observer) see(event watch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, ok := event.Object.(client.Object)
	if !ok {
		o.ended = true
		return
	}
	if event.Type == watch.Added {
		o.made = append(o.made, fmt.Sprintf("%T %s", object, object.GetName()))
	}
	if event.Type == watch.Deleted {
		o.gone = append(o.gone, fmt.Sprintf("%T %s", object, object.GetName()))
	}
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return
	}
	_, isControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	if _, updating := machine.Annotations[clusterv1.UpdateInProgressAnnotation]; isControlPlane && updating && event.Type != watch.Deleted {
		o.updating[machine.UID] = true
		o.most = max(o.most, len(o.updating))
	} else {
		delete(o.updating, machine.UID)
	}
}

// expectInPlace expects that no object was created or deleted since, and that one Machine of the control plane was updated
// at a time.
func (o *observer) expectInPlace(g Gomega) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g.Expect(o.ended).To(BeFalse(), "the watches have seen it all")
	g.Expect(o.made).To(BeEmpty())
	g.Expect(o.gone).To(BeEmpty())
	g.Expect(o.most).To(Equal(1), "control planes that were updated at once")
}
