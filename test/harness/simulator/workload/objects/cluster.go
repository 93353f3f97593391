package objects

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfigMaps and Secrets that nodes read during discovery.
const (
	ConfigKey   = "ClusterConfiguration"
	ConfigName  = "kubeadm-config"
	InfoName    = "cluster-info"
	InfoKey     = "kubeconfig"
	TokenPrefix = "bootstrap-token-"
)

// getNodes is the role that allows joining nodes to check whether their name is taken.
const getNodes = "kubeadm:get-nodes"

// Cluster returns the objects that kubeadm init creates, apart from the first node's. info is the
// kubeconfig in the ConfigMap cluster-info; kube-proxy's ConfigMap gets it as well, without
// credentials.
func Cluster(version string, configuration, info []byte) []client.Object {
	system := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, Labels: map[string]string{"k8s-app": name}}
	}
	template := func(name, image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"k8s-app": name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}},
		}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": name}}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespacePublic}},
		&corev1.ConfigMap{ObjectMeta: system(ConfigName), Data: map[string]string{ConfigKey: string(configuration)}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: InfoName},
			Data:       map[string]string{InfoKey: string(info)},
		},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: getNodes},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: getNodes},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: getNodes},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers:kubeadm:default-node-token"}},
		},
		&corev1.ConfigMap{ObjectMeta: system("kube-proxy"), Data: map[string]string{"kubeconfig.conf": string(info)}},
		&appsv1.DaemonSet{
			ObjectMeta: system("kube-proxy"),
			Spec: appsv1.DaemonSetSpec{
				Selector: selector("kube-proxy"), Template: template("kube-proxy", "registry.k8s.io/kube-proxy:"+version),
			},
		},
		&corev1.ConfigMap{ObjectMeta: system("coredns"), Data: map[string]string{"Corefile": ".:53 {\n}\n"}},
		&appsv1.Deployment{
			ObjectMeta: system("coredns"),
			Spec:       appsv1.DeploymentSpec{Selector: selector("coredns"), Template: template("coredns", "registry.k8s.io/coredns/coredns:v1.14.2")},
		},
	}
}
