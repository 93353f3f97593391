package ownership_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

const core = "cluster.x-k8s.io/v1beta2"

func ownedBy(apiVersion, kind, name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "edge", Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}}}
}

func ref(group, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
}

func TestClusterAndElementalClusterReferToEachOther(t *testing.T) {
	group := infrav1.GroupVersion.Group
	for name, test := range map[string]struct {
		ref  clusterv1.ContractVersionedObjectReference
		meta metav1.ObjectMeta
		want bool
	}{
		"both ways":               {ref(group, "ElementalCluster", "a"), ownedBy(core, "Cluster", "c", "1"), true},
		"older API version":       {ref(group, "ElementalCluster", "a"), ownedBy("cluster.x-k8s.io/v1beta1", "Cluster", "c", "1"), true},
		"reference to another":    {ref(group, "ElementalCluster", "b"), ownedBy(core, "Cluster", "c", "1"), false},
		"reference to a group":    {ref("other.example.com", "ElementalCluster", "a"), ownedBy(core, "Cluster", "c", "1"), false},
		"reference to a kind":     {ref(group, "OtherCluster", "a"), ownedBy(core, "Cluster", "c", "1"), false},
		"no owner":                {ref(group, "ElementalCluster", "a"), metav1.ObjectMeta{Namespace: "edge", Name: "a"}, false},
		"a former owner":          {ref(group, "ElementalCluster", "a"), ownedBy(core, "Cluster", "c", "0"), false},
		"owner of another name":   {ref(group, "ElementalCluster", "a"), ownedBy(core, "Cluster", "d", "1"), false},
		"owner of another group":  {ref(group, "ElementalCluster", "a"), ownedBy("example.com/v1", "Cluster", "c", "1"), false},
		"owner without a version": {ref(group, "ElementalCluster", "a"), ownedBy("a/b/c", "Cluster", "c", "1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "c", UID: "1"}}
			cluster.Spec.InfrastructureRef = test.ref
			infra := &infrav1.ElementalCluster{ObjectMeta: test.meta}
			NewWithT(t).Expect(ownership.IsInfraCluster(infra, cluster)).To(Equal(test.want))
			matches := BeEmpty()
			if !test.want {
				matches = Not(BeEmpty())
			}
			NewWithT(t).Expect(ownership.InfraClusterMismatch(infra, cluster)).To(matches)
		})
	}
}

func TestMachineAndElementalMachineReferToEachOther(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "m", UID: "1"}}
	machine.Spec.InfrastructureRef = ref(infrav1.GroupVersion.Group, "ElementalMachine", "a")
	infra := &infrav1.ElementalMachine{ObjectMeta: ownedBy(core, "Machine", "m", "1")}
	g.Expect(ownership.IsInfraMachine(infra, machine)).To(BeTrue())
	impostor := infra.DeepCopy()
	impostor.Name = "b"
	g.Expect(ownership.IsInfraMachine(impostor, machine)).To(BeFalse())
	infra.OwnerReferences = nil
	g.Expect(ownership.IsInfraMachine(infra, machine)).To(BeFalse())
	g.Expect(ownership.NamesInfraMachine(machine, infra)).To(BeTrue())
	g.Expect(ownership.InfraMachineMismatch(infra, machine)).To(ContainSubstring("metadata.uid there, which is 1"))
	g.Expect(ownership.InfraMachineMismatch(impostor, machine)).To(ContainSubstring("names ElementalMachine a: correct the reference if it has to name ElementalMachine b"))
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
	g.Expect(ownership.InfraMachineMismatch(infra, machine)).To(ContainSubstring("not set yet"))
}

func TestBootstrapData(t *testing.T) {
	const bootstrap = "bootstrap.cluster.x-k8s.io"
	config := ref(bootstrap, "KubeadmConfig", "k")
	controlled := func(apiVersion, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "1", Controller: new(true)}}
	}
	for name, test := range map[string]struct {
		config clusterv1.ContractVersionedObjectReference
		secret string
		owners []metav1.OwnerReference
		want   bool
	}{
		"of the configuration":          {config, "k", controlled(bootstrap+"/v1beta2", "KubeadmConfig", "k"), true},
		"of an older API version":       {config, "k", controlled(bootstrap+"/v1beta1", "KubeadmConfig", "k"), true},
		"of RKE2":                       {ref(bootstrap, "RKE2Config", "k"), "k", controlled(bootstrap+"/v1beta1", "RKE2Config", "k"), true},
		"of k3s":                        {ref(bootstrap, "KThreesConfig", "k"), "k", controlled(bootstrap+"/v1beta2", "KThreesConfig", "k"), true},
		"of another configuration":      {config, "k", controlled(bootstrap+"/v1beta2", "KubeadmConfig", "other"), false},
		"of another kind":               {config, "k", controlled(bootstrap+"/v1beta2", "RKE2Config", "k"), false},
		"of another group":              {config, "k", controlled("example.com/v1", "KubeadmConfig", "k"), false},
		"owned without a controller":    {config, "k", []metav1.OwnerReference{{APIVersion: bootstrap + "/v1beta2", Kind: "KubeadmConfig", Name: "k", UID: "1"}}, false},
		"without an owner":              {config, "k", nil, false},
		"kubeconfig of kubeadm":         {config, "c-kubeconfig", controlled("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "c"), false},
		"a user's":                      {ref("", "", ""), "k", nil, true},
		"a user's, owned by a user's":   {ref("", "", ""), "k", controlled("example.com/v1", "Inventory", "k"), true},
		"a user's, of a configuration":  {ref("", "", ""), "k", controlled(bootstrap+"/v1beta2", "KubeadmConfig", "k"), false},
		"a user's, of a control plane":  {ref("", "", ""), "k", controlled("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "c"), false},
		"a user's, owned by a Cluster":  {ref("", "", ""), "k", []metav1.OwnerReference{{APIVersion: core, Kind: "Cluster", Name: "c", UID: "1"}}, false},
		"a user's kubeconfig":           {ref("", "", ""), "c-kubeconfig", nil, false},
		"a user's CA":                   {ref("", "", ""), "c-ca", nil, false},
		"a user's key of etcd's client": {ref("", "", ""), "c-apiserver-etcd-client", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "m"}}
			machine.Spec.ClusterName, machine.Spec.Bootstrap.ConfigRef = "c", test.config
			data := &corev1.Secret{Type: clusterv1.ClusterSecretType, ObjectMeta: metav1.ObjectMeta{
				Namespace: "edge", Name: test.secret, OwnerReferences: test.owners, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
			}}
			g := NewWithT(t)
			g.Expect(ownership.IsBootstrapData(data, machine)).To(Equal(test.want))
			for _, change := range []func(){
				func() { data.Labels = map[string]string{clusterv1.ClusterNameLabel: "d"} },
				func() { data.Type = corev1.SecretTypeOpaque },
				func() { data.Namespace = "other" },
			} {
				before := data.DeepCopy()
				change()
				g.Expect(ownership.IsBootstrapData(data, machine)).To(BeFalse())
				data = before
			}
		})
	}
}
