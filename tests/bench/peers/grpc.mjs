// node grpc.mjs PORT - grpc.health.v1.Health/Check on @grpc/grpc-js, as plain as it gets: the two
// messages are written by hand, so that no schema work is counted against it.
import { Server, ServerCredentials } from "@grpc/grpc-js";

const same = (bytes) => bytes;
const service = {
    Check: {
        path: "/grpc.health.v1.Health/Check", requestStream: false, responseStream: false,
        requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
    },
};
const serving = Buffer.from([0x08, 0x01]);
const server = new Server();
server.addService(service, { Check: (call, reply) => reply(null, serving) });
server.bindAsync(`127.0.0.1:${process.argv[2]}`, ServerCredentials.createInsecure(), (error) => {
    if (error) throw error;
});
