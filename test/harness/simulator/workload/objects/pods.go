package objects

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Components to whose Pods clients forward ports.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
)

// Components returns the components that run as static Pods on a control-plane node.
func Components() []string {
	return []string{Etcd, APIServer, "kube-controller-manager", "kube-scheduler"}
}

// PodName returns the name of a component's static Pod on a node.
func PodName(component, node string) string { return component + "-" + node }

// Image returns the image of a component of a version of Kubernetes. That of etcd has a version of
// its own.
func Image(component, version string) string {
	if component == Etcd {
		return "registry.k8s.io/etcd:3.6.8-0"
	}
	return "registry.k8s.io/" + component + ":" + version
}

// StaticPod returns the running mirror Pod of the static Pod of a component, which is on the
// kubelet's node and has its version.
func StaticPod(component string, of Kubelet, annotations map[string]string, now time.Time) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: PodName(component, of.Name),
			Labels: map[string]string{"component": component, "tier": "control-plane"},
			// A drain ignores mirror Pods.
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: component, "kubernetes.io/config.source": "file"},
		},
		Spec: corev1.PodSpec{
			NodeName: of.Name, HostNetwork: true, Containers: []corev1.Container{{Name: component, Image: Image(component, of.Version)}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	maps.Copy(pod.Annotations, annotations)
	SetPodReady(pod, true, now)
	return pod
}

// SetPodReady sets a Pod's Ready condition. changed is false if it had that status before.
func SetPodReady(pod *corev1.Pod, ready bool, now time.Time) (changed bool) {
	next := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)}
	if ready {
		next.Status = corev1.ConditionTrue
	}
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type != next.Type {
			continue
		}
		changed = pod.Status.Conditions[i].Status != next.Status
		if changed {
			pod.Status.Conditions[i] = next
		}
		return changed
	}
	pod.Status.Conditions = append(pod.Status.Conditions, next)
	return true
}
