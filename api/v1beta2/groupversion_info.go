package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of this API.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"} //nolint:gochecknoglobals // a struct can't be a constant

// AddToScheme registers all kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ElementalCluster{}, &ElementalClusterList{},
		&ElementalClusterTemplate{}, &ElementalClusterTemplateList{},
		&ElementalMachine{}, &ElementalMachineList{},
		&ElementalMachineTemplate{}, &ElementalMachineTemplateList{},
		&ElementalHost{}, &ElementalHostList{},
		&ElementalHostGrant{}, &ElementalHostGrantList{},
		&ElementalRegistration{}, &ElementalRegistrationList{},
		&ElementalEtcdRestore{}, &ElementalEtcdRestoreList{},
		&ElementalKubernetesRelease{}, &ElementalKubernetesReleaseList{},
		&ElementalRemediation{}, &ElementalRemediationList{},
		&ElementalRemediationTemplate{}, &ElementalRemediationTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
