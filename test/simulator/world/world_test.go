//go:build simulator

package world_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/world"
)

const often = 200 * time.Millisecond

func TestOne(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(3 * time.Minute)
	g.SetDefaultEventuallyPollingInterval(often)
	folder := filepath.Join(os.TempDir(), "simulator-one")
	g.Expect(os.RemoveAll(folder)).To(Succeed())
	o := world.Options{Hosts: 2, Progress: os.Stderr, AgentLog: filepath.Join(os.TempDir(), "simulator-agents.log")}
	o.Management.Folder = folder
	w, err := world.Start(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(w.Close()).To(Succeed()) }()
	g.Expect(w.Fleet.PowerOn(t.Context(), 0)).To(Succeed())
	began := time.Now()
	g.Expect(w.Create(t.Context(), world.Cluster{Name: "one", ControlPlanes: 1, Workers: 0, Change: func(*unstructured.Unstructured) error { return nil }})).To(Succeed())
	kcp := &controlplanev1.KubeadmControlPlane{}
	g.Eventually(func() int32 {
		g.Expect(w.Admin.Get(t.Context(), client.ObjectKey{Namespace: world.Namespace, Name: "one-control-plane"}, kcp)).To(Succeed())
		if kcp.Status.ReadyReplicas == nil {
			return 0
		}
		return *kcp.Status.ReadyReplicas
	}).Should(Equal(int32(1)))
	t.Logf("ready after %s", time.Since(began))
	cluster := &clusterv1.Cluster{}
	g.Expect(w.Admin.Get(t.Context(), client.ObjectKey{Namespace: world.Namespace, Name: "one"}, cluster)).To(Succeed())
	t.Log(cluster.Spec.ControlPlaneEndpoint)
}
