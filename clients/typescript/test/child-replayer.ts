import { Sidecar } from 'ckptsidecar';

console.log('begins');
console.log(await new Sidecar().replay());
