"""Every gRPC method, on one screen. Roles are those of the HTTP routes that do the same."""

from wakeful.config.settings import Role
from wakeful.engine import Engine
from wakeful.frontends.grpc.admin import AdminHandlers
from wakeful.frontends.grpc.call import Method
from wakeful.frontends.grpc.health import Health
from wakeful.frontends.grpc.infer import InferHandlers, Spawn

_OPEN, _LOOK, _RUN, _ADMIN = None, Role.READ_ONLY, Role.INFERENCE, Role.ADMIN
_OIP, _SNOOZE, _HEALTH = "/inference.GRPCInferenceService/", "/snoozeml.v1.InferenceService/", "/grpc.health.v1.Health/"


def table(engine: Engine, spawn: Spawn) -> list[Method]:
    infer, admin, health = InferHandlers(engine, spawn), AdminHandlers(engine, spawn), Health(engine.condition)
    verb = admin.handler
    return [
        # Open Inference Protocol
        Method(_OIP + "ModelInfer", _RUN, "oip", infer.oip, "Run the model, waking it if it sleeps"),
        Method(_OIP + "ModelStreamInfer", _RUN, "oip", infer.oip, "The same for many requests, answered in their order", "stream"),
        Method(_OIP + "ServerLive", _OPEN, "oip", verb("ServerLive", admin.live), "True while the server runs"),
        Method(_OIP + "ServerReady", _OPEN, "oip", verb("ServerReady", admin.ready), "Does the server take requests?"),
        Method(_OIP + "ServerMetadata", _LOOK, "oip", verb("ServerMetadata", admin.server), "Name, version and extensions of the server"),
        Method(_OIP + "ModelReady", _LOOK, "oip", verb("ModelReady", admin.model_ready), "Is it awake?"),
        Method(_OIP + "ModelMetadata", _LOOK, "oip", verb("ModelMetadata", admin.model), "Inputs and outputs; does not wake it"),
        Method(_OIP + "ModelConfig", _LOOK, "oip", verb("ModelConfig", admin.config), "Its configuration, in Triton's form"),
        Method(_OIP + "ModelStatistics", _LOOK, "oip", verb("ModelStatistics", admin.statistics), "Counts and times, of one model or of all"),
        Method(_OIP + "RepositoryIndex", _LOOK, "oip", verb("RepositoryIndex", admin.index), "Models and states; with `ready` those awake"),
        Method(_OIP + "RepositoryModelLoad", _ADMIN, "oip", verb("RepositoryModelLoad", admin.load), "Wake the model, and answer when it is awake"),
        Method(_OIP + "RepositoryModelUnload", _ADMIN, "oip", verb("RepositoryModelUnload", admin.unload), "Put the model to sleep"),
        # SnoozeML
        Method(_SNOOZE + "Infer", _RUN, "snooze", infer.snooze, "Run the model, waking it if it sleeps; float32 only"),
        # Health
        Method(_HEALTH + "Check", _OPEN, "oip", health.check, "SERVING while the server takes requests"),
        Method(_HEALTH + "Watch", _OPEN, "oip", health.watch, "The same now and whenever it changes", "answers"),
    ]
