package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
)

// Unknown fields are errors: a misspelt field would test nothing.
var reader = kjson.NewSerializerWithOptions(
	kjson.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme, kjson.SerializerOptions{Strict: true},
)

// read returns an object as the API server would hold it: with defaults, checked, and changed as at creation.
func read(raw []byte, grandfathered map[string]bool) (runtime.Object, error) {
	object, kind, err := reader.Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	meta := object.(metav1.Object)
	if meta.GetUID() == "" {
		meta.SetUID(types.UID(kind.Kind + "/" + meta.GetNamespace() + "/" + meta.GetName()))
	}
	switch object.(type) {
	case *v1.Node, *v1.Namespace:
	default:
		if meta.GetNamespace() == "" {
			meta.SetNamespace(metav1.NamespaceDefault)
		}
	}
	legacyscheme.Scheme.Default(object)
	key := meta.GetNamespace() + "/" + meta.GetName()
	if errs, err := create(object); err != nil {
		return nil, err
	} else if len(errs) > 0 && !grandfathered[key] {
		return nil, fmt.Errorf("%s %s: %w", kind.Kind, key, errs.ToAggregate())
	}
	return object, nil
}

// create checks an object, and changes a pod as the API server does when it is created.
func create(object runtime.Object) (field.ErrorList, error) {
	options := corevalidation.PodValidationOptions{}
	switch o := object.(type) {
	case *v1.Pod:
		return createPod(o)
	case *v1.Node:
		return checked(o, &core.Node{}, corevalidation.ValidateNode)
	case *v1.Namespace:
		return checked(o, &core.Namespace{}, corevalidation.ValidateNamespace)
	case *v1.Service:
		return checked(o, &core.Service{}, corevalidation.ValidateServiceCreate)
	case *v1.ReplicationController:
		return checked(o, &core.ReplicationController{}, func(c *core.ReplicationController) field.ErrorList {
			return corevalidation.ValidateReplicationController(c, options)
		})
	case *appsv1.ReplicaSet:
		return checked(o, &apps.ReplicaSet{}, func(c *apps.ReplicaSet) field.ErrorList {
			return appsvalidation.ValidateReplicaSet(c, options)
		})
	case *appsv1.StatefulSet:
		return checked(o, &apps.StatefulSet{}, func(c *apps.StatefulSet) field.ErrorList {
			return appsvalidation.ValidateStatefulSet(c, options)
		})
	case *policyv1.PodDisruptionBudget:
		return checked(o, &policy.PodDisruptionBudget{}, func(c *policy.PodDisruptionBudget) field.ErrorList {
			return policyvalidation.ValidatePodDisruptionBudget(c, policyvalidation.PodDisruptionBudgetValidationOptions{})
		})
	}
	return nil, fmt.Errorf("a %T is not planned with", object)
}

func checked[T any](object runtime.Object, internal T, validate func(T) field.ErrorList) (field.ErrorList, error) {
	if err := legacyscheme.Scheme.Convert(object, internal, nil); err != nil {
		return nil, err
	}
	return validate(internal), nil
}

// createPod lets the API server's own code prepare and check a new pod; the status is the given one again.
func createPod(pod *v1.Pod) (field.ErrorList, error) {
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(context.Background(), internal)
	errs := podregistry.Strategy.Validate(context.Background(), internal)
	created := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, created, nil); err != nil {
		return nil, err
	}
	created.Status = pod.Status
	*pod = *created
	return errs, nil
}
