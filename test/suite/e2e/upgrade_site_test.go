//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
)

const (
	// bareNamespace has the bare hosts and their clusters.
	bareNamespace = "bare"
	// firstBareHost is the number of the first bare host, above those of all other hosts.
	firstBareHost = 21
	// bareHosts is how many upgrades need: three control planes and two workers.
	bareHosts = 5
	// bundleFolder is the folder with bundles on the management cluster's node, servedFolder in
	// the manager's Pod.
	bundleFolder, servedFolder = "/var/lib/elemental-bundles", "/bundles"
)

// bareSite is a group of hosts with nothing but Debian and the agent, in a namespace of its own,
// and the releases of Kubernetes that they can get.
type bareSite struct {
	boxes             []*engine.Host
	previous, current image.Bundle
}

// startBareSite starts and enrols hosts, and serves the bundles of both versions. All of it is removed after the specs.
func startBareSite(ctx context.Context, count int) *bareSite {
	GinkgoHelper()
	s, bare := &bareSite{}, lab.NewBare(hosts)
	step("bare hosts: bundles built", func() {
		var err error
		s.previous, err = bare.Bundle(ctx, image.Previous, image.None)
		Expect(err).NotTo(HaveOccurred())
		s.current, err = bare.Bundle(ctx, image.Current, image.None)
		Expect(err).NotTo(HaveOccurred())
	})
	s.start(ctx, count, bare.Host, s.previous, s.current)
	return s
}

// start serves bundles and enrols hosts that it gets by their numbers. All of it is removed after the specs.
func (s *bareSite) start(ctx context.Context, count int, host func(context.Context, int) (*engine.Host, error), bundles ...image.Bundle) {
	GinkgoHelper()
	DeferCleanup(s.remove)
	step("bare hosts: bundles served", func() { serveBundles(ctx, bundles...) })
	step("bare hosts: enrolled", func() {
		Expect(management.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: bareNamespace, Labels: map[string]string{"infrastructure.cluster.x-k8s.io/elemental-in-place": "true"},
		}})).To(Succeed())
		for number := range count {
			box, err := host(ctx, firstBareHost+number)
			Expect(err).NotTo(HaveOccurred())
			s.boxes = append(s.boxes, box)
		}
		Expect(hosts.Enrol(ctx, lab.Enrolment{Name: "bare", Namespace: bareNamespace, Hosts: s.boxes})).To(Succeed())
	})
	for _, b := range bundles {
		release(ctx, b)
		fmt.Printf("  %s: %.1f MiB\n", filepath.Base(b.File), float64(b.Size)/(1<<20))
	}
}

// release makes the bundle that of its version. Hosts get it from the sources, or from the manager.
func release(ctx context.Context, b image.Bundle, sources ...string) {
	GinkgoHelper()
	object := &infrav1.ElementalKubernetesRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: bareNamespace, Name: b.Version},
		Spec: infrav1.ElementalKubernetesReleaseSpec{Version: b.Version, Bundles: []infrav1.KubernetesBundle{{
			Architecture: runtime.GOARCH, SHA256: b.SHA256, SizeBytes: b.Size, Sources: sources,
		}}},
	}
	Expect(client.IgnoreNotFound(management.Delete(ctx, object.DeepCopy()))).To(Succeed())
	Expect(management.Create(ctx, object)).To(Succeed())
}

// bundleVolume is a volume with the bundles. The manager's namespace allows no folders of nodes.
const bundleVolume = `
apiVersion: v1
kind: PersistentVolume
metadata:
  name: elemental-bundles
spec:
  capacity: {storage: 8Gi}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  hostPath: {path: FOLDER}
  claimRef: {namespace: NAMESPACE, name: bundles}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: bundles
  namespace: NAMESPACE
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: elemental-bundles
  resources: {requests: {storage: 8Gi}}
`

// serveBundles puts bundles into the management cluster and mounts them into the manager.
func serveBundles(ctx context.Context, bundles ...image.Bundle) {
	GinkgoHelper()
	for _, b := range bundles {
		Expect(hosts.Management().Copy(ctx, b.File, bundleFolder)).To(Succeed())
	}
	key, deployment := managerDeployment(ctx), &appsv1.Deployment{}
	Expect(management.Get(ctx, key, deployment)).To(Succeed())
	before := deployment.DeepCopy()
	spec := &deployment.Spec.Template.Spec
	isMount := func(m corev1.VolumeMount) bool { return m.MountPath == servedFolder }
	if slices.ContainsFunc(spec.Containers[0].VolumeMounts, isMount) {
		return
	}
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{
		Name: "bundles", MountPath: servedFolder, ReadOnly: true,
	})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "bundles", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "bundles", ReadOnly: true},
	}})
	apply(ctx, strings.NewReplacer("FOLDER", bundleFolder, "NAMESPACE", key.Namespace).Replace(bundleVolume))
	Expect(management.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
	kubectl(ctx, "--namespace", key.Namespace, "rollout", "status", "deployment/"+key.Name, "--timeout", "5m")
}

// remove removes the namespace and the hosts.
func (s *bareSite) remove(ctx context.Context) {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bareNamespace}}
	Expect(client.IgnoreNotFound(management.Delete(ctx, ns))).To(Succeed())
	for _, box := range s.boxes {
		Expect(box.Remove(ctx)).To(Succeed())
	}
	Eventually(func() bool {
		return apierrors.IsNotFound(management.Get(ctx, client.ObjectKeyFromObject(ns), ns))
	}).WithTimeout(2 * time.Minute).Should(BeTrue())
}

// hosts returns the ElementalHosts.
func (s *bareSite) hosts(ctx context.Context) []infrav1.ElementalHost {
	GinkgoHelper()
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(bareNamespace))).To(Succeed())
	return list.Items
}

// box returns the lab host of an ElementalHost.
func (s *bareSite) box(host *infrav1.ElementalHost) *engine.Host {
	GinkgoHelper()
	for _, box := range s.boxes {
		if hasAddress(host, box.Address) {
			return box
		}
	}
	Fail("no bare host has an address of " + host.Name)
	return nil
}

// expectAvailable waits until all hosts were reset and are available.
func (s *bareSite) expectAvailable(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, host := range s.hosts(ctx) {
			g.Expect(host.Spec.Claim).To(BeNil(), "host %s", host.Name)
			for _, condition := range []string{infrav1.CleanCondition, infrav1.AvailableCondition} {
				g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).To(BeTrue(), "host %s: %+v", host.Name, host.Status.Conditions)
			}
		}
	}).WithTimeout(resetTimeout).Should(Succeed())
}
